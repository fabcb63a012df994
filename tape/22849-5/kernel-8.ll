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
  br label %L8
L8:
  %v11 = phi i64 [ %begin, %entry ], [ %v41, %L16 ]
  %v42 = icmp slt i64 %v11, %end
  br i1 %v42, label %L9, label %L10
L9:
  %v12 = urem i64 %v11, 3
  %v13 = udiv i64 %v11, 3
  br label %L14
L14:
  %v17 = phi i64 [ 0, %L9 ], [ %v39, %L15 ]
  %v40 = icmp slt i64 %v17, 4
  br i1 %v40, label %L15, label %L16
L15:
  %v18 = mul nsw i64 12, %v13
  %v19 = mul nsw i64 4, %v12
  %v20 = add nsw i64 %v18, %v19
  %v21 = add nsw i64 %v20, %v17
  %v22 = getelementptr inbounds float, ptr %v1, i64 %v21
  %v23 = load <4 x float>, ptr %v22, align 4
  %v24 = mul nsw i64 4, %v13
  %v25 = mul nsw i64 8, %v12
  %v26 = add nsw i64 %v24, %v25
  %v27 = add nsw i64 %v26, %v17
  %v28 = getelementptr inbounds float, ptr %v3, i64 %v27
  %v29 = load <4 x float>, ptr %v28, align 4
  %v30 = getelementptr inbounds float, ptr %v5, i64 %v17
  %v31 = load <4 x float>, ptr %v30, align 4
  %v32 = fadd <4 x float> %v29, %v31
  %v33 = fadd <4 x float> %v23, %v32
  %v34 = mul nsw i64 12, %v13
  %v35 = mul nsw i64 4, %v12
  %v36 = add nsw i64 %v34, %v35
  %v37 = add nsw i64 %v36, %v17
  %v38 = getelementptr inbounds float, ptr %v7, i64 %v37
  store <4 x float> %v33, ptr %v38, align 4
  %v39 = add nsw i64 %v17, 4
  br label %L14
L16:
  %v41 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
