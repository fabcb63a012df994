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
  %v10 = phi i64 [ 0, %entry ], [ %v39, %L15 ]
  %v40 = icmp slt i64 %v10, %v6
  br i1 %v40, label %L8, label %L9
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
  store <16 x float> %v17, ptr %v38, align 4
  %v39 = add nsw i64 %v10, 16
  br label %L7
L9:
  br label %L41
L41:
  %v44 = phi i64 [ %v6, %L9 ], [ %v69, %L47 ]
  %v70 = icmp slt i64 %v44, %v5
  br i1 %v70, label %L42, label %L43
L42:
  br label %L45
L45:
  %v48 = phi i64 [ 0, %L42 ], [ %v66, %L55 ]
  %v49 = phi float [ 0x0000000000000000, %L42 ], [ %v65, %L55 ]
  %v67 = icmp slt i64 %v48, 300
  br i1 %v67, label %L46, label %L47
L46:
  %v50 = add nsw i64 %v48, 32
  %v51 = icmp slt i64 %v50, 300
  %v52 = select i1 %v51, i64 %v50, i64 300
  br label %L53
L53:
  %v56 = phi i64 [ %v48, %L46 ], [ %v63, %L54 ]
  %v57 = phi float [ 0x8000000000000000, %L46 ], [ %v62, %L54 ]
  %v64 = icmp slt i64 %v56, %v52
  br i1 %v64, label %L54, label %L55
L54:
  %v58 = mul nsw i64 %v56, %v5
  %v59 = add nsw i64 %v44, %v58
  %v60 = getelementptr inbounds float, ptr %v1, i64 %v59
  %v61 = load float, ptr %v60, align 4
  %v62 = fadd float %v57, %v61
  %v63 = add nsw i64 %v56, 1
  br label %L53
L55:
  %v65 = fadd float %v49, %v57
  %v66 = add nsw i64 %v48, 32
  br label %L45
L47:
  %v68 = getelementptr inbounds float, ptr %v3, i64 %v44
  store float %v49, ptr %v68, align 4
  %v69 = add nsw i64 %v44, 1
  br label %L41
L43:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="128" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
