define dso_local i32 @tatara_kernel(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  %v6 = getelementptr ptr, ptr %buffers, i64 3
  %v7 = load ptr, ptr %v6
  %v8 = getelementptr ptr, ptr %buffers, i64 4
  %v9 = load ptr, ptr %v8
  %v10 = getelementptr ptr, ptr %buffers, i64 5
  %v11 = load ptr, ptr %v10
  %v12 = getelementptr ptr, ptr %buffers, i64 6
  %v13 = load ptr, ptr %v12
  br label %L14
L14:
  %v17 = phi i64 [ %begin, %entry ], [ %v56, %L20 ]
  %v57 = icmp slt i64 %v17, %end
  br i1 %v57, label %L15, label %L16
L15:
  br label %L18
L18:
  %v21 = phi i64 [ 0, %L15 ], [ %v54, %L19 ]
  %v55 = icmp slt i64 %v21, 4
  br i1 %v55, label %L19, label %L20
L19:
  %v22 = mul nsw i64 4, %v17
  %v23 = add nsw i64 %v22, %v21
  %v24 = getelementptr inbounds float, ptr %v1, i64 %v23
  %v25 = load <4 x float>, ptr %v24, align 4
  %v26 = getelementptr inbounds float, ptr %v3, i64 %v21
  %v27 = load <4 x float>, ptr %v26, align 4
  %v28 = fadd <4 x float> %v25, %v27
  %v29 = mul nsw i64 4, %v17
  %v30 = add nsw i64 %v29, %v21
  %v31 = getelementptr inbounds float, ptr %v5, i64 %v30
  %v32 = load <4 x float>, ptr %v31, align 4
  %v33 = add nsw i64 %v21, 4
  %v34 = getelementptr inbounds float, ptr %v3, i64 %v33
  %v35 = load <4 x float>, ptr %v34, align 4
  %v36 = fadd <4 x float> %v32, %v35
  %v37 = mul nsw i64 4, %v17
  %v38 = add nsw i64 %v37, %v21
  %v39 = getelementptr inbounds float, ptr %v7, i64 %v38
  %v40 = load <4 x float>, ptr %v39, align 4
  %v41 = add nsw i64 %v21, 8
  %v42 = getelementptr inbounds float, ptr %v3, i64 %v41
  %v43 = load <4 x float>, ptr %v42, align 4
  %v44 = fadd <4 x float> %v40, %v43
  %v45 = mul nsw i64 4, %v17
  %v46 = add nsw i64 %v45, %v21
  %v47 = getelementptr inbounds float, ptr %v9, i64 %v46
  store <4 x float> %v28, ptr %v47, align 4
  %v48 = mul nsw i64 4, %v17
  %v49 = add nsw i64 %v48, %v21
  %v50 = getelementptr inbounds float, ptr %v11, i64 %v49
  store <4 x float> %v36, ptr %v50, align 4
  %v51 = mul nsw i64 4, %v17
  %v52 = add nsw i64 %v51, %v21
  %v53 = getelementptr inbounds float, ptr %v13, i64 %v52
  store <4 x float> %v44, ptr %v53, align 4
  %v54 = add nsw i64 %v21, 4
  br label %L18
L20:
  %v56 = add nsw i64 %v17, 1
  br label %L14
L16:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
