define dso_local i32 @tatara_kernel(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  %v8 = sub i64 12, 0
  %v9 = icmp sgt i64 %v8, 0
  br i1 %v9, label %L6, label %L7
L6:
  %v10 = trunc i64 %v8 to i32
  %v11 = insertelement <16 x i32> poison, i32 %v10, i64 0
  %v12 = shufflevector <16 x i32> %v11, <16 x i32> poison, <16 x i32> zeroinitializer
  %v13 = icmp sgt <16 x i32> %v12, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v14 = getelementptr inbounds float, ptr %v1, i64 0
  %v15 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr align 4 %v14, <16 x i1> %v13, <16 x float> zeroinitializer)
  %v16 = getelementptr inbounds float, ptr %v3, i64 0
  %v17 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr align 4 %v16, <16 x i1> %v13, <16 x float> zeroinitializer)
  %v18 = fadd <16 x float> %v15, %v17
  %v19 = getelementptr inbounds float, ptr %v5, i64 0
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v18, ptr align 4 %v19, <16 x i1> %v13)
  br label %L7
L7:
  ret i32 0
}
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, <16 x i1>, <16 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, <16 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
