define dso_local i32 @complex_mul_abs(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  br label %L6
L6:
  %v9 = phi i64 [ 0, %entry ], [ %v48, %L7 ]
  %v49 = icmp slt i64 %v9, 1000
  br i1 %v49, label %L7, label %L8
L7:
  %v10 = getelementptr inbounds { float, float }, ptr %v1, i64 %v9
  %v11 = load <16 x float>, ptr %v10, align 4
  %v12 = shufflevector <16 x float> %v11, <16 x float> poison, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v13 = shufflevector <16 x float> %v11, <16 x float> poison, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %v14 = getelementptr inbounds { float, float }, ptr %v3, i64 %v9
  %v15 = load <16 x float>, ptr %v14, align 4
  %v16 = shufflevector <16 x float> %v15, <16 x float> poison, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v17 = shufflevector <16 x float> %v15, <16 x float> poison, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %v18 = fmul <8 x float> %v13, %v17
  %v19 = fmul <8 x float> %v12, %v16
  %v20 = fsub <8 x float> %v19, %v18
  %v21 = fmul <8 x float> %v13, %v16
  %v22 = fmul <8 x float> %v12, %v17
  %v23 = fadd <8 x float> %v22, %v21
  %v24 = call <8 x float> @llvm.fabs.v8f32(<8 x float> %v20)
  %v25 = call <8 x float> @llvm.fabs.v8f32(<8 x float> %v23)
  %v26 = fcmp ogt <8 x float> %v24, %v25
  %v27 = select <8 x i1> %v26, <8 x float> %v24, <8 x float> %v25
  %v28 = fcmp ogt <8 x float> %v27, splat (float 0x43D0000000000000)
  %v29 = fcmp olt <8 x float> %v27, splat (float 0x3D70000000000000)
  %v30 = select <8 x i1> %v29, <8 x float> splat (float 0x4630000000000000), <8 x float> splat (float 0x3FF0000000000000)
  %v31 = select <8 x i1> %v28, <8 x float> splat (float 0x3BB0000000000000), <8 x float> %v30
  %v32 = select <8 x i1> %v29, <8 x float> splat (float 0x39B0000000000000), <8 x float> splat (float 0x3FF0000000000000)
  %v33 = select <8 x i1> %v28, <8 x float> splat (float 0x4430000000000000), <8 x float> %v32
  %v34 = fmul <8 x float> %v24, %v31
  %v35 = fmul <8 x float> %v25, %v31
  %v36 = fmul <8 x float> %v35, %v35
  %v37 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v34, <8 x float> %v34, <8 x float> %v36)
  %v38 = call <8 x float> @llvm.sqrt.v8f32(<8 x float> %v37)
  %v39 = fmul <8 x float> %v38, %v33
  %v40 = fcmp oeq <8 x float> %v25, splat (float 0x7FF0000000000000)
  %v41 = fcmp oeq <8 x float> %v24, splat (float 0x7FF0000000000000)
  %v42 = or <8 x i1> %v41, %v40
  %v43 = select <8 x i1> %v42, <8 x float> splat (float 0x7FF0000000000000), <8 x float> %v39
  %v44 = getelementptr inbounds float, ptr %v5, i64 %v9
  %v45 = shufflevector <8 x float> %v43, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  store <4 x float> %v45, ptr %v44, align 4
  %v46 = shufflevector <8 x float> %v43, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v47 = getelementptr inbounds float, ptr %v44, i64 4
  store <4 x float> %v46, ptr %v47, align 4
  %v48 = add nsw i64 %v9, 8
  br label %L6
L8:
  ret i32 0
}
declare <8 x float> @llvm.fabs.v8f32(<8 x float>)
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare <8 x float> @llvm.sqrt.v8f32(<8 x float>)
attributes #0 = { nounwind "prefer-vector-width"="128" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
