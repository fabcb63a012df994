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
  %v9 = phi i64 [ %begin, %entry ], [ %v26, %L12 ]
  %v27 = icmp slt i64 %v9, %end
  br i1 %v27, label %L7, label %L8
L7:
  br label %L10
L10:
  %v13 = phi i64 [ 0, %L7 ], [ %v24, %L11 ]
  %v25 = icmp slt i64 %v13, 4
  br i1 %v25, label %L11, label %L12
L11:
  %v14 = mul nsw i64 4, %v9
  %v15 = add nsw i64 %v14, %v13
  %v16 = getelementptr inbounds float, ptr %v1, i64 %v15
  %v17 = load <4 x float>, ptr %v16, align 4
  %v18 = getelementptr inbounds float, ptr %v3, i64 %v13
  %v19 = load <4 x float>, ptr %v18, align 4
  %v20 = fadd <4 x float> %v17, %v19
  %v21 = mul nsw i64 4, %v9
  %v22 = add nsw i64 %v21, %v13
  %v23 = getelementptr inbounds float, ptr %v5, i64 %v22
  store <4 x float> %v20, ptr %v23, align 4
  %v24 = add nsw i64 %v13, 4
  br label %L10
L12:
  %v26 = add nsw i64 %v9, 1
  br label %L6
L8:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
