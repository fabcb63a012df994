define dso_local i32 @column_sums(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr i64, ptr %sizes, i64 0
  %v5 = load i64, ptr %v4
  %v6 = and i64 %v5, -16
  br label %L7
L7:
  %v10 = phi i64 [ 0, %entry ], [ %v46, %L15 ]
  %v47 = icmp slt i64 %v10, %v6
  br i1 %v47, label %L8, label %L9
L8:
  %v11 = insertelement <16 x float> poison, float 0x0000000000000000, i64 0
  %v12 = shufflevector <16 x float> %v11, <16 x float> poison, <16 x i32> zeroinitializer
  br label %L13
L13:
  %v16 = phi i64 [ 0, %L8 ], [ %v36, %L25 ]
  %v17 = phi <16 x float> [ %v12, %L8 ], [ %v35, %L25 ]
  %v37 = icmp slt i64 %v16, 300
  br i1 %v37, label %L14, label %L15
L14:
  %v18 = add nsw i64 %v16, 32
  %v19 = icmp slt i64 %v18, 300
  %v20 = select i1 %v19, i64 %v18, i64 300
  %v21 = insertelement <16 x float> poison, float 0x8000000000000000, i64 0
  %v22 = shufflevector <16 x float> %v21, <16 x float> poison, <16 x i32> zeroinitializer
  br label %L23
L23:
  %v26 = phi i64 [ %v16, %L14 ], [ %v33, %L24 ]
  %v27 = phi <16 x float> [ %v22, %L14 ], [ %v32, %L24 ]
  %v34 = icmp slt i64 %v26, %v20
  br i1 %v34, label %L24, label %L25
L24:
  %v28 = mul nsw i64 %v26, %v5
  %v29 = add nsw i64 %v10, %v28
  %v30 = getelementptr inbounds float, ptr %v1, i64 %v29
  %v31 = load <16 x float>, ptr %v30, align 4
  %v32 = fadd <16 x float> %v27, %v31
  %v33 = add nsw i64 %v26, 1
  br label %L23
L25:
  %v35 = fadd <16 x float> %v17, %v27
  %v36 = add nsw i64 %v16, 32
  br label %L13
L15:
  %v38 = getelementptr inbounds float, ptr %v3, i64 %v10
  %v39 = shufflevector <16 x float> %v17, <16 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  store <4 x float> %v39, ptr %v38, align 4
  %v40 = shufflevector <16 x float> %v17, <16 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v41 = getelementptr inbounds float, ptr %v38, i64 4
  store <4 x float> %v40, ptr %v41, align 4
  %v42 = shufflevector <16 x float> %v17, <16 x float> poison, <4 x i32> <i32 8, i32 9, i32 10, i32 11>
  %v43 = getelementptr inbounds float, ptr %v38, i64 8
  store <4 x float> %v42, ptr %v43, align 4
  %v44 = shufflevector <16 x float> %v17, <16 x float> poison, <4 x i32> <i32 12, i32 13, i32 14, i32 15>
  %v45 = getelementptr inbounds float, ptr %v38, i64 12
  store <4 x float> %v44, ptr %v45, align 4
  %v46 = add nsw i64 %v10, 16
  br label %L7
L9:
  br label %L48
L48:
  %v51 = phi i64 [ %v6, %L9 ], [ %v76, %L54 ]
  %v77 = icmp slt i64 %v51, %v5
  br i1 %v77, label %L49, label %L50
L49:
  br label %L52
L52:
  %v55 = phi i64 [ 0, %L49 ], [ %v73, %L62 ]
  %v56 = phi float [ 0x0000000000000000, %L49 ], [ %v72, %L62 ]
  %v74 = icmp slt i64 %v55, 300
  br i1 %v74, label %L53, label %L54
L53:
  %v57 = add nsw i64 %v55, 32
  %v58 = icmp slt i64 %v57, 300
  %v59 = select i1 %v58, i64 %v57, i64 300
  br label %L60
L60:
  %v63 = phi i64 [ %v55, %L53 ], [ %v70, %L61 ]
  %v64 = phi float [ 0x8000000000000000, %L53 ], [ %v69, %L61 ]
  %v71 = icmp slt i64 %v63, %v59
  br i1 %v71, label %L61, label %L62
L61:
  %v65 = mul nsw i64 %v63, %v5
  %v66 = add nsw i64 %v51, %v65
  %v67 = getelementptr inbounds float, ptr %v1, i64 %v66
  %v68 = load float, ptr %v67, align 4
  %v69 = fadd float %v64, %v68
  %v70 = add nsw i64 %v63, 1
  br label %L60
L62:
  %v72 = fadd float %v56, %v64
  %v73 = add nsw i64 %v55, 32
  br label %L52
L54:
  %v75 = getelementptr inbounds float, ptr %v3, i64 %v51
  store float %v56, ptr %v75, align 4
  %v76 = add nsw i64 %v51, 1
  br label %L48
L50:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="128" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
