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
  %v9 = phi i64 [ %begin, %entry ], [ %v34, %L14 ]
  %v35 = icmp slt i64 %v9, %end
  br i1 %v35, label %L7, label %L8
L7:
  %v10 = urem i64 %v9, 6
  %v11 = udiv i64 %v9, 6
  br label %L12
L12:
  %v15 = phi i64 [ 0, %L7 ], [ %v32, %L13 ]
  %v33 = icmp slt i64 %v15, 4
  br i1 %v33, label %L13, label %L14
L13:
  %v16 = mul nsw i64 4, %v11
  %v17 = mul nsw i64 12, %v10
  %v18 = add nsw i64 %v16, %v17
  %v19 = add nsw i64 %v18, %v15
  %v20 = getelementptr inbounds float, ptr %v1, i64 %v19
  %v21 = load <4 x float>, ptr %v20, align 4
  %v22 = mul nsw i64 4, %v11
  %v23 = add nsw i64 %v22, %v15
  %v24 = getelementptr inbounds float, ptr %v3, i64 %v23
  %v25 = load <4 x float>, ptr %v24, align 4
  %v26 = fadd <4 x float> %v21, %v25
  %v27 = mul nsw i64 24, %v11
  %v28 = mul nsw i64 4, %v10
  %v29 = add nsw i64 %v27, %v28
  %v30 = add nsw i64 %v29, %v15
  %v31 = getelementptr inbounds float, ptr %v5, i64 %v30
  store <4 x float> %v26, ptr %v31, align 4
  %v32 = add nsw i64 %v15, 4
  br label %L12
L14:
  %v34 = add nsw i64 %v9, 1
  br label %L6
L8:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
