define dso_local i32 @tatara_kernel(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  br label %L4
L4:
  %v7 = phi i64 [ %begin, %entry ], [ %v25, %L10 ]
  %v26 = icmp slt i64 %v7, %end
  br i1 %v26, label %L5, label %L6
L5:
  br label %L8
L8:
  %v11 = phi i64 [ 0, %L5 ], [ %v23, %L9 ]
  %v24 = icmp slt i64 %v11, 4
  br i1 %v24, label %L9, label %L10
L9:
  %v12 = udiv i64 %v7, 2
  %v13 = mul nsw i64 4, %v12
  %v14 = add nsw i64 %v11, %v13
  %v15 = urem i64 %v7, 2
  %v16 = mul nsw i64 12, %v15
  %v17 = add nsw i64 %v14, %v16
  %v18 = getelementptr inbounds float, ptr %v1, i64 %v17
  %v19 = load <4 x float>, ptr %v18, align 4
  %v20 = mul nsw i64 4, %v7
  %v21 = add nsw i64 %v20, %v11
  %v22 = getelementptr inbounds float, ptr %v3, i64 %v21
  store <4 x float> %v19, ptr %v22, align 4
  %v23 = add nsw i64 %v11, 4
  br label %L8
L10:
  %v25 = add nsw i64 %v7, 1
  br label %L4
L6:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
