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
  %v9 = phi i64 [ %begin, %entry ], [ %v32, %L12 ]
  %v33 = icmp slt i64 %v9, %end
  br i1 %v33, label %L7, label %L8
L7:
  br label %L10
L10:
  %v13 = phi i64 [ 0, %L7 ], [ %v30, %L11 ]
  %v31 = icmp slt i64 %v13, 8
  br i1 %v31, label %L11, label %L12
L11:
  %v14 = mul nsw i64 8, %v9
  %v15 = add nsw i64 %v14, %v13
  %v16 = getelementptr inbounds float, ptr %v1, i64 %v15
  %v17 = load <8 x float>, ptr %v16, align 4
  %v18 = getelementptr inbounds float, ptr %v3, i64 %v13
  %v19 = load <8 x float>, ptr %v18, align 4
  %v20 = fadd <8 x float> %v17, %v19
  %v21 = insertelement <8 x float> poison, float 0x0000000000000000, i64 0
  %v22 = shufflevector <8 x float> %v21, <8 x float> poison, <8 x i32> zeroinitializer
  %v23 = fcmp ogt <8 x float> %v20, %v22
  %v24 = select <8 x i1> %v23, <8 x float> %v20, <8 x float> %v22
  %v25 = fcmp uno <8 x float> %v20, %v20
  %v26 = select <8 x i1> %v25, <8 x float> %v20, <8 x float> %v24
  %v27 = mul nsw i64 8, %v9
  %v28 = add nsw i64 %v27, %v13
  %v29 = getelementptr inbounds float, ptr %v5, i64 %v28
  store <8 x float> %v26, ptr %v29, align 4
  %v30 = add nsw i64 %v13, 8
  br label %L10
L12:
  %v32 = add nsw i64 %v9, 1
  br label %L6
L8:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
