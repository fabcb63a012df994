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
  %v8 = getelementptr ptr, ptr %buffers, i64 4
  %v9 = load ptr, ptr %v8
  br label %L10
L10:
  %v13 = phi i64 [ %begin, %entry ], [ %v87, %L56 ]
  %v88 = icmp slt i64 %v13, %end
  br i1 %v88, label %L11, label %L12
L11:
  %v14 = urem i64 %v13, 3
  %v15 = udiv i64 %v13, 3
  %v16 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v17 = shufflevector <4 x float> %v16, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L18
L18:
  %v21 = phi i64 [ 0, %L11 ], [ %v42, %L19 ]
  %v22 = phi <4 x float> [ %v17, %L11 ], [ %v36, %L19 ]
  %v43 = icmp slt i64 %v21, 4
  br i1 %v43, label %L19, label %L20
L19:
  %v23 = mul nsw i64 12, %v15
  %v24 = mul nsw i64 4, %v14
  %v25 = add nsw i64 %v23, %v24
  %v26 = add nsw i64 %v25, %v21
  %v27 = getelementptr inbounds float, ptr %v1, i64 %v26
  %v28 = load <4 x float>, ptr %v27, align 4
  %v29 = mul nsw i64 4, %v15
  %v30 = mul nsw i64 8, %v14
  %v31 = add nsw i64 %v29, %v30
  %v32 = add nsw i64 %v31, %v21
  %v33 = getelementptr inbounds float, ptr %v3, i64 %v32
  %v34 = load <4 x float>, ptr %v33, align 4
  %v35 = fadd <4 x float> %v28, %v34
  %v36 = fadd <4 x float> %v22, %v35
  %v37 = mul nsw i64 12, %v15
  %v38 = mul nsw i64 4, %v14
  %v39 = add nsw i64 %v37, %v38
  %v40 = add nsw i64 %v39, %v21
  %v41 = getelementptr inbounds float, ptr %v5, i64 %v40
  store <4 x float> %v35, ptr %v41, align 4
  %v42 = add nsw i64 %v21, 4
  br label %L18
L20:
  %v44 = shufflevector <4 x float> %v22, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v45 = shufflevector <4 x float> %v22, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v46 = fadd <2 x float> %v44, %v45
  %v47 = extractelement <2 x float> %v46, i64 0
  %v48 = extractelement <2 x float> %v46, i64 1
  %v49 = fadd float %v47, %v48
  %v50 = fadd float 0x0000000000000000, %v49
  %v51 = fdiv float %v50, 0x4010000000000000
  %v52 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v53 = shufflevector <4 x float> %v52, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L54
L54:
  %v57 = phi i64 [ 0, %L20 ], [ %v75, %L55 ]
  %v58 = phi <4 x float> [ %v53, %L20 ], [ %v69, %L55 ]
  %v76 = icmp slt i64 %v57, 4
  br i1 %v76, label %L55, label %L56
L55:
  %v59 = mul nsw i64 12, %v15
  %v60 = mul nsw i64 4, %v14
  %v61 = add nsw i64 %v59, %v60
  %v62 = add nsw i64 %v61, %v57
  %v63 = getelementptr inbounds float, ptr %v5, i64 %v62
  %v64 = load <4 x float>, ptr %v63, align 4
  %v65 = insertelement <4 x float> poison, float %v51, i64 0
  %v66 = shufflevector <4 x float> %v65, <4 x float> poison, <4 x i32> zeroinitializer
  %v67 = fsub <4 x float> %v64, %v66
  %v68 = fmul <4 x float> %v67, %v67
  %v69 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v67, <4 x float> %v67, <4 x float> %v58)
  %v70 = mul nsw i64 12, %v15
  %v71 = mul nsw i64 4, %v14
  %v72 = add nsw i64 %v70, %v71
  %v73 = add nsw i64 %v72, %v57
  %v74 = getelementptr inbounds float, ptr %v7, i64 %v73
  store <4 x float> %v67, ptr %v74, align 4
  %v75 = add nsw i64 %v57, 4
  br label %L54
L56:
  %v77 = shufflevector <4 x float> %v58, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v78 = shufflevector <4 x float> %v58, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v79 = fadd <2 x float> %v77, %v78
  %v80 = extractelement <2 x float> %v79, i64 0
  %v81 = extractelement <2 x float> %v79, i64 1
  %v82 = fadd float %v80, %v81
  %v83 = fadd float 0x0000000000000000, %v82
  %v84 = mul nsw i64 3, %v15
  %v85 = add nsw i64 %v84, %v14
  %v86 = getelementptr inbounds float, ptr %v9, i64 %v85
  store float %v83, ptr %v86, align 4
  %v87 = add nsw i64 %v13, 1
  br label %L10
L12:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
