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
  %v11 = phi i64 [ %begin, %entry ], [ %v33, %L14 ]
  %v34 = icmp slt i64 %v11, %end
  br i1 %v34, label %L9, label %L10
L9:
  br label %L12
L12:
  %v15 = phi i64 [ 0, %L9 ], [ %v31, %L13 ]
  %v32 = icmp slt i64 %v15, 4
  br i1 %v32, label %L13, label %L14
L13:
  %v16 = mul nsw i64 4, %v11
  %v17 = add nsw i64 %v16, %v15
  %v18 = getelementptr inbounds float, ptr %v1, i64 %v17
  %v19 = load <4 x float>, ptr %v18, align 4
  %v20 = mul nsw i64 4, %v11
  %v21 = add nsw i64 %v20, %v15
  %v22 = getelementptr inbounds float, ptr %v3, i64 %v21
  %v23 = load <4 x float>, ptr %v22, align 4
  %v24 = getelementptr inbounds float, ptr %v5, i64 %v15
  %v25 = load <4 x float>, ptr %v24, align 4
  %v26 = fadd <4 x float> %v23, %v25
  %v27 = fadd <4 x float> %v19, %v26
  %v28 = mul nsw i64 4, %v11
  %v29 = add nsw i64 %v28, %v15
  %v30 = getelementptr inbounds float, ptr %v7, i64 %v29
  store <4 x float> %v27, ptr %v30, align 4
  %v31 = add nsw i64 %v15, 4
  br label %L12
L14:
  %v33 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
