define dso_local i32 @tatara_kernel(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  br label %L4
L4:
  %v7 = phi i64 [ 0, %entry ], [ %v17, %L5 ]
  %v18 = icmp slt i64 %v7, 16
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
  %v21 = sub i64 24, 16
  %v22 = icmp sgt i64 %v21, 0
  br i1 %v22, label %L19, label %L20
L19:
  %v23 = trunc i64 %v21 to i32
  %v24 = insertelement <16 x i32> poison, i32 %v23, i64 0
  %v25 = shufflevector <16 x i32> %v24, <16 x i32> poison, <16 x i32> zeroinitializer
  %v26 = icmp sgt <16 x i32> %v25, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v27 = getelementptr inbounds float, ptr %v1, i64 16
  %v28 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr align 4 %v27, <16 x i1> %v26, <16 x float> zeroinitializer)
  %v29 = insertelement <16 x float> poison, float 0x0000000000000000, i64 0
  %v30 = shufflevector <16 x float> %v29, <16 x float> poison, <16 x i32> zeroinitializer
  %v31 = fcmp ogt <16 x float> %v28, %v30
  %v32 = select <16 x i1> %v31, <16 x float> %v28, <16 x float> %v30
  %v33 = fcmp uno <16 x float> %v28, %v28
  %v34 = select <16 x i1> %v33, <16 x float> %v28, <16 x float> %v32
  %v35 = getelementptr inbounds float, ptr %v3, i64 16
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v34, ptr align 4 %v35, <16 x i1> %v26)
  br label %L20
L20:
  ret i32 0
}
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, <16 x i1>, <16 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, <16 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
