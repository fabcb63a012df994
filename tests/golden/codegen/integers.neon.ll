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
  %v12 = and i64 %v9, -4
  br label %L13
L13:
  %v16 = phi i64 [ 0, %entry ], [ %v56, %L14 ]
  %v57 = icmp slt i64 %v16, %v12
  br i1 %v57, label %L14, label %L15
L14:
  %v17 = getelementptr inbounds i8, ptr %v1, i64 %v16
  %v18 = load <4 x i8>, ptr %v17, align 1
  %v19 = getelementptr inbounds i8, ptr %v3, i64 %v16
  %v20 = load <4 x i8>, ptr %v19, align 1
  %v21 = insertelement <4 x i8> poison, i8 7, i64 0
  %v22 = shufflevector <4 x i8> %v21, <4 x i8> poison, <4 x i32> zeroinitializer
  %v23 = icmp eq <4 x i8> %v22, splat (i8 0)
  %v24 = icmp eq <4 x i8> %v22, splat (i8 -1)
  %v25 = or <4 x i1> %v23, %v24
  %v26 = select <4 x i1> %v25, <4 x i8> splat (i8 1), <4 x i8> %v22
  %v27 = sdiv <4 x i8> %v18, %v26
  %v28 = sub <4 x i8> splat (i8 0), %v18
  %v29 = select <4 x i1> %v24, <4 x i8> %v28, <4 x i8> %v27
  %v30 = mul <4 x i8> %v29, %v22
  %v31 = sub <4 x i8> %v18, %v30
  %v32 = icmp ne <4 x i8> %v31, splat (i8 0)
  %v33 = xor <4 x i8> %v31, %v22
  %v34 = icmp slt <4 x i8> %v33, splat (i8 0)
  %v35 = and <4 x i1> %v32, %v34
  %v36 = add <4 x i8> %v31, %v22
  %v37 = select <4 x i1> %v35, <4 x i8> %v36, <4 x i8> %v31
  %v38 = insertelement <4 x i8> poison, i8 3, i64 0
  %v39 = shufflevector <4 x i8> %v38, <4 x i8> poison, <4 x i32> zeroinitializer
  %v40 = icmp ule <4 x i8> %v39, splat (i8 7)
  %v41 = select <4 x i1> %v40, <4 x i8> %v39, <4 x i8> splat (i8 7)
  %v42 = lshr <4 x i8> %v20, %v41
  %v43 = select <4 x i1> %v40, <4 x i8> %v42, <4 x i8> splat (i8 0)
  %v44 = add <4 x i8> %v37, %v43
  %v45 = getelementptr inbounds i8, ptr %v5, i64 %v16
  store <4 x i8> %v44, ptr %v45, align 1
  %v46 = insertelement <4 x i8> poison, i8 7, i64 0
  %v47 = shufflevector <4 x i8> %v46, <4 x i8> poison, <4 x i32> zeroinitializer
  %v48 = icmp slt <4 x i8> %v44, %v47
  %v49 = zext <4 x i1> %v48 to <4 x i8>
  %v50 = mul nsw i64 -1, %v16
  %v51 = add nsw i64 %v50, %v9
  %v52 = add nsw i64 %v51, -1
  %v53 = sub i64 %v52, 3
  %v54 = shufflevector <4 x i8> %v49, <4 x i8> poison, <4 x i32> <i32 3, i32 2, i32 1, i32 0>
  %v55 = getelementptr inbounds i8, ptr %v7, i64 %v53
  store <4 x i8> %v54, ptr %v55, align 1
  %v56 = add nsw i64 %v16, 4
  br label %L13
L15:
  br label %L58
L58:
  %v61 = phi i64 [ %v12, %L15 ], [ %v93, %L59 ]
  %v94 = icmp slt i64 %v61, %v9
  br i1 %v94, label %L59, label %L60
L59:
  %v62 = getelementptr inbounds i8, ptr %v1, i64 %v61
  %v63 = load i8, ptr %v62, align 1
  %v64 = getelementptr inbounds i8, ptr %v3, i64 %v61
  %v65 = load i8, ptr %v64, align 1
  %v66 = icmp eq i8 7, 0
  %v67 = icmp eq i8 7, -1
  %v68 = or i1 %v66, %v67
  %v69 = select i1 %v68, i8 1, i8 7
  %v70 = sdiv i8 %v63, %v69
  %v71 = sub i8 0, %v63
  %v72 = select i1 %v67, i8 %v71, i8 %v70
  %v73 = mul i8 %v72, 7
  %v74 = sub i8 %v63, %v73
  %v75 = icmp ne i8 %v74, 0
  %v76 = xor i8 %v74, 7
  %v77 = icmp slt i8 %v76, 0
  %v78 = and i1 %v75, %v77
  %v79 = add i8 %v74, 7
  %v80 = select i1 %v78, i8 %v79, i8 %v74
  %v81 = icmp ule i8 3, 7
  %v82 = select i1 %v81, i8 3, i8 7
  %v83 = lshr i8 %v65, %v82
  %v84 = select i1 %v81, i8 %v83, i8 0
  %v85 = add i8 %v80, %v84
  %v86 = getelementptr inbounds i8, ptr %v5, i64 %v61
  store i8 %v85, ptr %v86, align 1
  %v87 = icmp slt i8 %v85, 7
  %v88 = mul nsw i64 -1, %v61
  %v89 = add nsw i64 %v88, %v9
  %v90 = add nsw i64 %v89, -1
  %v91 = getelementptr inbounds i8, ptr %v7, i64 %v90
  %v92 = zext i1 %v87 to i8
  store i8 %v92, ptr %v91, align 1
  %v93 = add nsw i64 %v61, 1
  br label %L58
L60:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="128" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
