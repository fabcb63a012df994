define dso_local i32 @streams(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  br label %L4
L4:
  %v7 = phi i64 [ %begin, %entry ], [ %v34, %L10 ]
  %v35 = icmp slt i64 %v7, %end
  br i1 %v35, label %L5, label %L6
L5:
  br label %L8
L8:
  %v11 = phi i64 [ 0, %L5 ], [ %v32, %L9 ]
  %v33 = icmp slt i64 %v11, 4096
  br i1 %v33, label %L9, label %L10
L9:
  %v12 = mul nsw i64 4096, %v7
  %v13 = add nsw i64 %v12, %v11
  %v14 = getelementptr inbounds i8, ptr %v1, i64 %v13
  %v15 = load <32 x i8>, ptr %v14, align 1
  %v16 = uitofp <32 x i8> %v15 to <32 x float>
  %v17 = insertelement <32 x float> poison, float 0x3FE0000000000000, i64 0
  %v18 = shufflevector <32 x float> %v17, <32 x float> poison, <32 x i32> zeroinitializer
  %v19 = fmul <32 x float> %v16, %v18
  %v20 = mul nsw i64 4096, %v7
  %v21 = add nsw i64 %v20, %v11
  %v22 = getelementptr inbounds float, ptr %v3, i64 %v21
  %v23 = shufflevector <32 x float> %v19, <32 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  store <8 x float> %v23, ptr %v22, align 4
  %v24 = shufflevector <32 x float> %v19, <32 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v25 = getelementptr inbounds float, ptr %v22, i64 8
  store <8 x float> %v24, ptr %v25, align 4
  %v26 = shufflevector <32 x float> %v19, <32 x float> poison, <8 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23>
  %v27 = getelementptr inbounds float, ptr %v22, i64 16
  store <8 x float> %v26, ptr %v27, align 4
  %v28 = shufflevector <32 x float> %v19, <32 x float> poison, <8 x i32> <i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v29 = getelementptr inbounds float, ptr %v22, i64 24
  store <8 x float> %v28, ptr %v29, align 4
  %v30 = getelementptr i8, ptr %v22, i64 4096
  call void @llvm.prefetch.p0(ptr %v30, i32 1, i32 3, i32 1)
  %v31 = getelementptr i8, ptr %v22, i64 4160
  call void @llvm.prefetch.p0(ptr %v31, i32 1, i32 3, i32 1)
  %v32 = add nsw i64 %v11, 32
  br label %L8
L10:
  %v34 = add nsw i64 %v7, 1
  br label %L4
L6:
  ret i32 0
}
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
attributes #0 = { nounwind "prefer-vector-width"="256" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
