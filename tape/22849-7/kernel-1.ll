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
  %v11 = phi i64 [ %begin, %entry ], [ %v45, %L24 ]
  %v46 = icmp slt i64 %v11, %end
  br i1 %v46, label %L9, label %L10
L9:
  %v12 = udiv i64 %v11, 2
  %v13 = urem i64 %v11, 2
  %v14 = mul nsw i64 3, %v13
  %v15 = add nsw i64 %v12, %v14
  %v16 = getelementptr inbounds float, ptr %v3, i64 %v15
  %v17 = load float, ptr %v16, align 4
  %v18 = fdiv float %v17, 0x4010000000000000
  %v19 = fadd float %v18, 0x3EE4F8B580000000
  %v20 = call float @llvm.sqrt.f32(float %v19)
  %v21 = fdiv float 0x3FF0000000000000, %v20
  br label %L22
L22:
  %v25 = phi i64 [ 0, %L9 ], [ %v43, %L23 ]
  %v44 = icmp slt i64 %v25, 4
  br i1 %v44, label %L23, label %L24
L23:
  %v26 = udiv i64 %v11, 2
  %v27 = mul nsw i64 4, %v26
  %v28 = add nsw i64 %v25, %v27
  %v29 = urem i64 %v11, 2
  %v30 = mul nsw i64 12, %v29
  %v31 = add nsw i64 %v28, %v30
  %v32 = getelementptr inbounds float, ptr %v1, i64 %v31
  %v33 = load <4 x float>, ptr %v32, align 4
  %v34 = insertelement <4 x float> poison, float %v21, i64 0
  %v35 = shufflevector <4 x float> %v34, <4 x float> poison, <4 x i32> zeroinitializer
  %v36 = fmul <4 x float> %v33, %v35
  %v37 = getelementptr inbounds float, ptr %v5, i64 %v25
  %v38 = load <4 x float>, ptr %v37, align 4
  %v39 = fmul <4 x float> %v36, %v38
  %v40 = mul nsw i64 4, %v11
  %v41 = add nsw i64 %v40, %v25
  %v42 = getelementptr inbounds float, ptr %v7, i64 %v41
  store <4 x float> %v39, ptr %v42, align 4
  %v43 = add nsw i64 %v25, 4
  br label %L22
L24:
  %v45 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
declare float @llvm.sqrt.f32(float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
