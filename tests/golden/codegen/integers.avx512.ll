define dso_local i32 @integers(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  %v6 = getelementptr ptr, ptr %buffers, i64 3
  %v7 = load ptr, ptr %v6
  %v8 = getelementptr i64, ptr %sizes, i64 0
  %v9 = load i64, ptr %v8
  %v10 = getelementptr i64, ptr %scalars, i64 0
  %v11 = load i64, ptr %v10
  %v12 = and i64 %v9, -16
  br label %L13
L13:
  %v16 = phi i64 [ 0, %entry ], [ %v56, %L14 ]
  %v57 = icmp slt i64 %v16, %v12
  br i1 %v57, label %L14, label %L15
L14:
  %v17 = getelementptr inbounds i8, ptr %v1, i64 %v16
  %v18 = load <16 x i8>, ptr %v17, align 1
  %v19 = getelementptr inbounds i8, ptr %v3, i64 %v16
  %v20 = load <16 x i8>, ptr %v19, align 1
  %v21 = insertelement <16 x i8> poison, i8 7, i64 0
  %v22 = shufflevector <16 x i8> %v21, <16 x i8> poison, <16 x i32> zeroinitializer
  %v23 = icmp eq <16 x i8> %v22, splat (i8 0)
  %v24 = icmp eq <16 x i8> %v22, splat (i8 -1)
  %v25 = or <16 x i1> %v23, %v24
  %v26 = select <16 x i1> %v25, <16 x i8> splat (i8 1), <16 x i8> %v22
  %v27 = sdiv <16 x i8> %v18, %v26
  %v28 = sub <16 x i8> splat (i8 0), %v18
  %v29 = select <16 x i1> %v24, <16 x i8> %v28, <16 x i8> %v27
  %v30 = mul <16 x i8> %v29, %v22
  %v31 = sub <16 x i8> %v18, %v30
  %v32 = icmp ne <16 x i8> %v31, splat (i8 0)
  %v33 = xor <16 x i8> %v31, %v22
  %v34 = icmp slt <16 x i8> %v33, splat (i8 0)
  %v35 = and <16 x i1> %v32, %v34
  %v36 = add <16 x i8> %v31, %v22
  %v37 = select <16 x i1> %v35, <16 x i8> %v36, <16 x i8> %v31
  %v38 = insertelement <16 x i8> poison, i8 3, i64 0
  %v39 = shufflevector <16 x i8> %v38, <16 x i8> poison, <16 x i32> zeroinitializer
  %v40 = icmp ule <16 x i8> %v39, splat (i8 7)
  %v41 = select <16 x i1> %v40, <16 x i8> %v39, <16 x i8> splat (i8 7)
  %v42 = lshr <16 x i8> %v20, %v41
  %v43 = select <16 x i1> %v40, <16 x i8> %v42, <16 x i8> splat (i8 0)
  %v44 = add <16 x i8> %v37, %v43
  %v45 = getelementptr inbounds i8, ptr %v5, i64 %v16
  store <16 x i8> %v44, ptr %v45, align 1
  %v46 = insertelement <16 x i8> poison, i8 7, i64 0
  %v47 = shufflevector <16 x i8> %v46, <16 x i8> poison, <16 x i32> zeroinitializer
  %v48 = icmp slt <16 x i8> %v44, %v47
  %v49 = zext <16 x i1> %v48 to <16 x i8>
  %v50 = mul nsw i64 -1, %v16
  %v51 = add nsw i64 %v50, %v9
  %v52 = add nsw i64 %v51, -1
  %v53 = sub i64 %v52, 15
  %v54 = shufflevector <16 x i8> %v49, <16 x i8> poison, <16 x i32> <i32 15, i32 14, i32 13, i32 12, i32 11, i32 10, i32 9, i32 8, i32 7, i32 6, i32 5, i32 4, i32 3, i32 2, i32 1, i32 0>
  %v55 = getelementptr inbounds i8, ptr %v7, i64 %v53
  store <16 x i8> %v54, ptr %v55, align 1
  %v56 = add nsw i64 %v16, 16
  br label %L13
L15:
  %v60 = sub i64 %v9, %v12
  %v61 = icmp sgt i64 %v60, 0
  br i1 %v61, label %L58, label %L59
L58:
  %v62 = trunc i64 %v60 to i32
  %v63 = insertelement <16 x i32> poison, i32 %v62, i64 0
  %v64 = shufflevector <16 x i32> %v63, <16 x i32> poison, <16 x i32> zeroinitializer
  %v65 = icmp sgt <16 x i32> %v64, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v66 = getelementptr inbounds i8, ptr %v1, i64 %v12
  %v67 = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr align 1 %v66, <16 x i1> %v65, <16 x i8> zeroinitializer)
  %v68 = getelementptr inbounds i8, ptr %v3, i64 %v12
  %v69 = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr align 1 %v68, <16 x i1> %v65, <16 x i8> zeroinitializer)
  %v70 = insertelement <16 x i8> poison, i8 7, i64 0
  %v71 = shufflevector <16 x i8> %v70, <16 x i8> poison, <16 x i32> zeroinitializer
  %v72 = icmp eq <16 x i8> %v71, splat (i8 0)
  %v73 = icmp eq <16 x i8> %v71, splat (i8 -1)
  %v74 = or <16 x i1> %v72, %v73
  %v75 = select <16 x i1> %v74, <16 x i8> splat (i8 1), <16 x i8> %v71
  %v76 = sdiv <16 x i8> %v67, %v75
  %v77 = sub <16 x i8> splat (i8 0), %v67
  %v78 = select <16 x i1> %v73, <16 x i8> %v77, <16 x i8> %v76
  %v79 = mul <16 x i8> %v78, %v71
  %v80 = sub <16 x i8> %v67, %v79
  %v81 = icmp ne <16 x i8> %v80, splat (i8 0)
  %v82 = xor <16 x i8> %v80, %v71
  %v83 = icmp slt <16 x i8> %v82, splat (i8 0)
  %v84 = and <16 x i1> %v81, %v83
  %v85 = add <16 x i8> %v80, %v71
  %v86 = select <16 x i1> %v84, <16 x i8> %v85, <16 x i8> %v80
  %v87 = insertelement <16 x i8> poison, i8 3, i64 0
  %v88 = shufflevector <16 x i8> %v87, <16 x i8> poison, <16 x i32> zeroinitializer
  %v89 = icmp ule <16 x i8> %v88, splat (i8 7)
  %v90 = select <16 x i1> %v89, <16 x i8> %v88, <16 x i8> splat (i8 7)
  %v91 = lshr <16 x i8> %v69, %v90
  %v92 = select <16 x i1> %v89, <16 x i8> %v91, <16 x i8> splat (i8 0)
  %v93 = add <16 x i8> %v86, %v92
  %v94 = getelementptr inbounds i8, ptr %v5, i64 %v12
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v93, ptr align 1 %v94, <16 x i1> %v65)
  %v95 = insertelement <16 x i8> poison, i8 7, i64 0
  %v96 = shufflevector <16 x i8> %v95, <16 x i8> poison, <16 x i32> zeroinitializer
  %v97 = icmp slt <16 x i8> %v93, %v96
  %v98 = zext <16 x i1> %v97 to <16 x i8>
  %v99 = mul nsw i64 -1, %v12
  %v100 = add nsw i64 %v99, %v9
  %v101 = add nsw i64 %v100, -1
  %v102 = sub i64 %v101, 15
  %v103 = shufflevector <16 x i1> %v65, <16 x i1> poison, <16 x i32> <i32 15, i32 14, i32 13, i32 12, i32 11, i32 10, i32 9, i32 8, i32 7, i32 6, i32 5, i32 4, i32 3, i32 2, i32 1, i32 0>
  %v104 = shufflevector <16 x i8> %v98, <16 x i8> poison, <16 x i32> <i32 15, i32 14, i32 13, i32 12, i32 11, i32 10, i32 9, i32 8, i32 7, i32 6, i32 5, i32 4, i32 3, i32 2, i32 1, i32 0>
  %v105 = getelementptr inbounds i8, ptr %v7, i64 %v102
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v104, ptr align 1 %v105, <16 x i1> %v103)
  br label %L59
L59:
  ret i32 0
}
declare <16 x i8> @llvm.masked.load.v16i8.p0(ptr, <16 x i1>, <16 x i8>)
declare void @llvm.masked.store.v16i8.p0(<16 x i8>, ptr, <16 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
