define dso_local i32 @tatara_kernel(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  br label %L4
L4:
  %v7 = phi i64 [ 0, %entry ], [ %v17, %L5 ]
  %v18 = icmp slt i64 %v7, 48
  br i1 %v18, label %L5, label %L6
L5:
  %v8 = getelementptr inbounds float, ptr %v1, i64 %v7
  %v9 = load <16 x float>, ptr %v8, align 4
  %v10 = insertelement <16 x float> poison, float 0x0000000000000000, i64 0
  %v11 = shufflevector <16 x float> %v10, <16 x float> poison, <16 x i32> zeroinitializer
  %v12 = fcmp ogt <16 x float> %v9, %v11
  %v13 = select <16 x i1> %v12, <16 x float> %v9, <16 x float> %v11
  %v14 = fcmp uno <16 x float> %v9, %v9
  %v15 = select <16 x i1> %v14, <16 x float> %v9, <16 x float> %v13
  %v16 = getelementptr inbounds float, ptr %v3, i64 %v7
  store <16 x float> %v15, ptr %v16, align 4
  %v17 = add nsw i64 %v7, 16
  br label %L4
L6:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
