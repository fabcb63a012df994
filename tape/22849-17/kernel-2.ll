define dso_local i32 @tatara_kernel(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v6 = sub i64 3, 0
  %v7 = icmp sgt i64 %v6, 0
  br i1 %v7, label %L4, label %L5
L4:
  %v8 = trunc i64 %v6 to i32
  %v9 = insertelement <4 x i32> poison, i32 %v8, i64 0
  %v10 = shufflevector <4 x i32> %v9, <4 x i32> poison, <4 x i32> zeroinitializer
  %v11 = icmp sgt <4 x i32> %v10, <i32 0, i32 1, i32 2, i32 3>
  %v12 = getelementptr inbounds i8, ptr %v1, i64 0
  %v13 = call <4 x i8> @llvm.masked.load.v4i8.p0(ptr align 1 %v12, <4 x i1> %v11, <4 x i8> zeroinitializer)
  %v14 = icmp ne <4 x i8> %v13, zeroinitializer
  %v15 = insertelement <4 x float> poison, float 0xFFF0000000000000, i64 0
  %v16 = shufflevector <4 x float> %v15, <4 x float> poison, <4 x i32> zeroinitializer
  %v17 = insertelement <4 x float> poison, float 0x0000000000000000, i64 0
  %v18 = shufflevector <4 x float> %v17, <4 x float> poison, <4 x i32> zeroinitializer
  %v19 = select <4 x i1> %v14, <4 x float> %v16, <4 x float> %v18
  %v20 = getelementptr inbounds float, ptr %v3, i64 0
  call void @llvm.masked.store.v4f32.p0(<4 x float> %v19, ptr align 4 %v20, <4 x i1> %v11)
  br label %L5
L5:
  ret i32 0
}
declare <4 x i8> @llvm.masked.load.v4i8.p0(ptr, <4 x i1>, <4 x i8>)
declare void @llvm.masked.store.v4f32.p0(<4 x float>, ptr, <4 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
