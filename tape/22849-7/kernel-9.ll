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
  %v9 = phi i64 [ 0, %entry ], [ %v16, %L7 ]
  %v17 = icmp slt i64 %v9, 16
  br i1 %v17, label %L7, label %L8
L7:
  %v10 = getelementptr inbounds float, ptr %v1, i64 %v9
  %v11 = load <16 x float>, ptr %v10, align 4
  %v12 = getelementptr inbounds float, ptr %v3, i64 %v9
  %v13 = load <16 x float>, ptr %v12, align 4
  %v14 = fadd <16 x float> %v11, %v13
  %v15 = getelementptr inbounds float, ptr %v5, i64 %v9
  store <16 x float> %v14, ptr %v15, align 4
  %v16 = add nsw i64 %v9, 16
  br label %L6
L8:
  %v20 = sub i64 24, 16
  %v21 = icmp sgt i64 %v20, 0
  br i1 %v21, label %L18, label %L19
L18:
  %v22 = trunc i64 %v20 to i32
  %v23 = insertelement <16 x i32> poison, i32 %v22, i64 0
  %v24 = shufflevector <16 x i32> %v23, <16 x i32> poison, <16 x i32> zeroinitializer
  %v25 = icmp sgt <16 x i32> %v24, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v26 = getelementptr inbounds float, ptr %v1, i64 16
  %v27 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr align 4 %v26, <16 x i1> %v25, <16 x float> zeroinitializer)
  %v28 = getelementptr inbounds float, ptr %v3, i64 16
  %v29 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr align 4 %v28, <16 x i1> %v25, <16 x float> zeroinitializer)
  %v30 = fadd <16 x float> %v27, %v29
  %v31 = getelementptr inbounds float, ptr %v5, i64 16
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v30, ptr align 4 %v31, <16 x i1> %v25)
  br label %L19
L19:
  ret i32 0
}
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, <16 x i1>, <16 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, <16 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
