define dso_local i32 @column_sums(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr i64, ptr %sizes, i64 0
  %v5 = load i64, ptr %v4
  %v6 = and i64 %v5, -32
  br label %L7
L7:
  %v10 = phi i64 [ 0, %entry ], [ %v46, %L15 ]
  %v47 = icmp slt i64 %v10, %v6
  br i1 %v47, label %L8, label %L9
L8:
  %v11 = insertelement <32 x float> poison, float 0x0000000000000000, i64 0
  %v12 = shufflevector <32 x float> %v11, <32 x float> poison, <32 x i32> zeroinitializer
  br label %L13
L13:
  %v16 = phi i64 [ 0, %L8 ], [ %v36, %L25 ]
  %v17 = phi <32 x float> [ %v12, %L8 ], [ %v35, %L25 ]
  %v37 = icmp slt i64 %v16, 300
  br i1 %v37, label %L14, label %L15
L14:
  %v18 = add nsw i64 %v16, 32
  %v19 = icmp slt i64 %v18, 300
  %v20 = select i1 %v19, i64 %v18, i64 300
  %v21 = insertelement <32 x float> poison, float 0x8000000000000000, i64 0
  %v22 = shufflevector <32 x float> %v21, <32 x float> poison, <32 x i32> zeroinitializer
  br label %L23
L23:
  %v26 = phi i64 [ %v16, %L14 ], [ %v33, %L24 ]
  %v27 = phi <32 x float> [ %v22, %L14 ], [ %v32, %L24 ]
  %v34 = icmp slt i64 %v26, %v20
  br i1 %v34, label %L24, label %L25
L24:
  %v28 = mul nsw i64 %v26, %v5
  %v29 = add nsw i64 %v10, %v28
  %v30 = getelementptr inbounds float, ptr %v1, i64 %v29
  %v31 = load <32 x float>, ptr %v30, align 4
  %v32 = fadd <32 x float> %v27, %v31
  %v33 = add nsw i64 %v26, 1
  br label %L23
L25:
  %v35 = fadd <32 x float> %v17, %v27
  %v36 = add nsw i64 %v16, 32
  br label %L13
L15:
  %v38 = getelementptr inbounds float, ptr %v3, i64 %v10
  %v39 = shufflevector <32 x float> %v17, <32 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  store <8 x float> %v39, ptr %v38, align 4
  %v40 = shufflevector <32 x float> %v17, <32 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v41 = getelementptr inbounds float, ptr %v38, i64 8
  store <8 x float> %v40, ptr %v41, align 4
  %v42 = shufflevector <32 x float> %v17, <32 x float> poison, <8 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23>
  %v43 = getelementptr inbounds float, ptr %v38, i64 16
  store <8 x float> %v42, ptr %v43, align 4
  %v44 = shufflevector <32 x float> %v17, <32 x float> poison, <8 x i32> <i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v45 = getelementptr inbounds float, ptr %v38, i64 24
  store <8 x float> %v44, ptr %v45, align 4
  %v46 = add nsw i64 %v10, 32
  br label %L7
L9:
  %v50 = sub i64 %v5, %v6
  %v51 = icmp sgt i64 %v50, 0
  br i1 %v51, label %L48, label %L49
L48:
  %v52 = trunc i64 %v50 to i32
  %v53 = insertelement <32 x i32> poison, i32 %v52, i64 0
  %v54 = shufflevector <32 x i32> %v53, <32 x i32> poison, <32 x i32> zeroinitializer
  %v55 = icmp sgt <32 x i32> %v54, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v56 = insertelement <32 x float> poison, float 0x0000000000000000, i64 0
  %v57 = shufflevector <32 x float> %v56, <32 x float> poison, <32 x i32> zeroinitializer
  br label %L58
L58:
  %v61 = phi i64 [ 0, %L48 ], [ %v81, %L70 ]
  %v62 = phi <32 x float> [ %v57, %L48 ], [ %v80, %L70 ]
  %v82 = icmp slt i64 %v61, 300
  br i1 %v82, label %L59, label %L60
L59:
  %v63 = add nsw i64 %v61, 32
  %v64 = icmp slt i64 %v63, 300
  %v65 = select i1 %v64, i64 %v63, i64 300
  %v66 = insertelement <32 x float> poison, float 0x8000000000000000, i64 0
  %v67 = shufflevector <32 x float> %v66, <32 x float> poison, <32 x i32> zeroinitializer
  br label %L68
L68:
  %v71 = phi i64 [ %v61, %L59 ], [ %v78, %L69 ]
  %v72 = phi <32 x float> [ %v67, %L59 ], [ %v77, %L69 ]
  %v79 = icmp slt i64 %v71, %v65
  br i1 %v79, label %L69, label %L70
L69:
  %v73 = mul nsw i64 %v71, %v5
  %v74 = add nsw i64 %v6, %v73
  %v75 = getelementptr inbounds float, ptr %v1, i64 %v74
  %v76 = call <32 x float> @llvm.masked.load.v32f32.p0(ptr align 4 %v75, <32 x i1> %v55, <32 x float> zeroinitializer)
  %v77 = fadd <32 x float> %v72, %v76
  %v78 = add nsw i64 %v71, 1
  br label %L68
L70:
  %v80 = fadd <32 x float> %v62, %v72
  %v81 = add nsw i64 %v61, 32
  br label %L58
L60:
  %v83 = getelementptr inbounds float, ptr %v3, i64 %v6
  call void @llvm.masked.store.v32f32.p0(<32 x float> %v62, ptr align 4 %v83, <32 x i1> %v55)
  br label %L49
L49:
  ret i32 0
}
declare <32 x float> @llvm.masked.load.v32f32.p0(ptr, <32 x i1>, <32 x float>)
declare void @llvm.masked.store.v32f32.p0(<32 x float>, ptr, <32 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="256" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
