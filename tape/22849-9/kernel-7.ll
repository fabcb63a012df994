define dso_local i32 @tatara_kernel(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  br label %L6
L6:
  %v9 = phi i64 [ %begin, %entry ], [ %v36, %L14 ]
  %v37 = icmp slt i64 %v9, %end
  br i1 %v37, label %L7, label %L8
L7:
  %v10 = urem i64 %v9, 3
  %v11 = udiv i64 %v9, 3
  br label %L12
L12:
  %v15 = phi i64 [ 0, %L7 ], [ %v34, %L13 ]
  %v35 = icmp slt i64 %v15, 4
  br i1 %v35, label %L13, label %L14
L13:
  %v16 = mul nsw i64 12, %v11
  %v17 = mul nsw i64 4, %v10
  %v18 = add nsw i64 %v16, %v17
  %v19 = add nsw i64 %v18, %v15
  %v20 = getelementptr inbounds float, ptr %v1, i64 %v19
  %v21 = load <4 x float>, ptr %v20, align 4
  %v22 = mul nsw i64 4, %v11
  %v23 = mul nsw i64 8, %v10
  %v24 = add nsw i64 %v22, %v23
  %v25 = add nsw i64 %v24, %v15
  %v26 = getelementptr inbounds float, ptr %v3, i64 %v25
  %v27 = load <4 x float>, ptr %v26, align 4
  %v28 = fadd <4 x float> %v21, %v27
  %v29 = mul nsw i64 12, %v11
  %v30 = mul nsw i64 4, %v10
  %v31 = add nsw i64 %v29, %v30
  %v32 = add nsw i64 %v31, %v15
  %v33 = getelementptr inbounds float, ptr %v5, i64 %v32
  store <4 x float> %v28, ptr %v33, align 4
  %v34 = add nsw i64 %v15, 4
  br label %L12
L14:
  %v36 = add nsw i64 %v9, 1
  br label %L6
L8:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
