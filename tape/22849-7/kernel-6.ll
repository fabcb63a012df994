define dso_local i32 @tatara_kernel(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  br label %L4
L4:
  %v7 = phi i64 [ %begin, %entry ], [ %v27, %L12 ]
  %v28 = icmp slt i64 %v7, %end
  br i1 %v28, label %L5, label %L6
L5:
  %v8 = urem i64 %v7, 6
  %v9 = udiv i64 %v7, 6
  br label %L10
L10:
  %v13 = phi i64 [ 0, %L5 ], [ %v25, %L11 ]
  %v26 = icmp slt i64 %v13, 4
  br i1 %v26, label %L11, label %L12
L11:
  %v14 = mul nsw i64 4, %v9
  %v15 = mul nsw i64 8, %v8
  %v16 = add nsw i64 %v14, %v15
  %v17 = add nsw i64 %v16, %v13
  %v18 = getelementptr inbounds float, ptr %v1, i64 %v17
  %v19 = load <4 x float>, ptr %v18, align 4
  %v20 = mul nsw i64 24, %v9
  %v21 = mul nsw i64 4, %v8
  %v22 = add nsw i64 %v20, %v21
  %v23 = add nsw i64 %v22, %v13
  %v24 = getelementptr inbounds float, ptr %v3, i64 %v23
  store <4 x float> %v19, ptr %v24, align 4
  %v25 = add nsw i64 %v13, 4
  br label %L10
L12:
  %v27 = add nsw i64 %v7, 1
  br label %L4
L6:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
