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
  %v9 = phi i64 [ %begin, %entry ], [ %v61, %L36 ]
  %v62 = icmp slt i64 %v9, %end
  br i1 %v62, label %L7, label %L8
L7:
  %v10 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v11 = shufflevector <4 x float> %v10, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L12
L12:
  %v15 = phi i64 [ 0, %L7 ], [ %v22, %L13 ]
  %v16 = phi <4 x float> [ %v11, %L7 ], [ %v21, %L13 ]
  %v23 = icmp slt i64 %v15, 4
  br i1 %v23, label %L13, label %L14
L13:
  %v17 = mul nsw i64 4, %v9
  %v18 = add nsw i64 %v17, %v15
  %v19 = getelementptr inbounds float, ptr %v1, i64 %v18
  %v20 = load <4 x float>, ptr %v19, align 4
  %v21 = fadd <4 x float> %v16, %v20
  %v22 = add nsw i64 %v15, 4
  br label %L12
L14:
  %v24 = shufflevector <4 x float> %v16, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v25 = shufflevector <4 x float> %v16, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v26 = fadd <2 x float> %v24, %v25
  %v27 = extractelement <2 x float> %v26, i64 0
  %v28 = extractelement <2 x float> %v26, i64 1
  %v29 = fadd float %v27, %v28
  %v30 = fadd float 0x0000000000000000, %v29
  %v31 = fdiv float %v30, 0x4010000000000000
  %v32 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v33 = shufflevector <4 x float> %v32, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L34
L34:
  %v37 = phi i64 [ 0, %L14 ], [ %v51, %L35 ]
  %v38 = phi <4 x float> [ %v33, %L14 ], [ %v47, %L35 ]
  %v52 = icmp slt i64 %v37, 4
  br i1 %v52, label %L35, label %L36
L35:
  %v39 = mul nsw i64 4, %v9
  %v40 = add nsw i64 %v39, %v37
  %v41 = getelementptr inbounds float, ptr %v1, i64 %v40
  %v42 = load <4 x float>, ptr %v41, align 4
  %v43 = insertelement <4 x float> poison, float %v31, i64 0
  %v44 = shufflevector <4 x float> %v43, <4 x float> poison, <4 x i32> zeroinitializer
  %v45 = fsub <4 x float> %v42, %v44
  %v46 = fmul <4 x float> %v45, %v45
  %v47 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v45, <4 x float> %v45, <4 x float> %v38)
  %v48 = mul nsw i64 4, %v9
  %v49 = add nsw i64 %v48, %v37
  %v50 = getelementptr inbounds float, ptr %v3, i64 %v49
  store <4 x float> %v45, ptr %v50, align 4
  %v51 = add nsw i64 %v37, 4
  br label %L34
L36:
  %v53 = shufflevector <4 x float> %v38, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v54 = shufflevector <4 x float> %v38, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v55 = fadd <2 x float> %v53, %v54
  %v56 = extractelement <2 x float> %v55, i64 0
  %v57 = extractelement <2 x float> %v55, i64 1
  %v58 = fadd float %v56, %v57
  %v59 = fadd float 0x0000000000000000, %v58
  %v60 = getelementptr inbounds float, ptr %v5, i64 %v9
  store float %v59, ptr %v60, align 4
  %v61 = add nsw i64 %v9, 1
  br label %L6
L8:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
