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
  %v13 = phi i64 [ %begin, %entry ], [ %v95, %L75 ]
  %v96 = icmp slt i64 %v13, %end
  br i1 %v96, label %L11, label %L12
L11:
  %v14 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v15 = shufflevector <4 x float> %v14, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L16
L16:
  %v19 = phi i64 [ 0, %L11 ], [ %v34, %L17 ]
  %v20 = phi <4 x float> [ %v15, %L11 ], [ %v30, %L17 ]
  %v35 = icmp slt i64 %v19, 4
  br i1 %v35, label %L17, label %L18
L17:
  %v21 = mul nsw i64 4, %v13
  %v22 = add nsw i64 %v21, %v19
  %v23 = getelementptr inbounds float, ptr %v1, i64 %v22
  %v24 = load <4 x float>, ptr %v23, align 4
  %v25 = mul nsw i64 4, %v13
  %v26 = add nsw i64 %v25, %v19
  %v27 = getelementptr inbounds float, ptr %v3, i64 %v26
  %v28 = load <4 x float>, ptr %v27, align 4
  %v29 = fadd <4 x float> %v24, %v28
  %v30 = fadd <4 x float> %v20, %v29
  %v31 = mul nsw i64 4, %v13
  %v32 = add nsw i64 %v31, %v19
  %v33 = getelementptr inbounds float, ptr %v5, i64 %v32
  store <4 x float> %v29, ptr %v33, align 4
  %v34 = add nsw i64 %v19, 4
  br label %L16
L18:
  %v36 = shufflevector <4 x float> %v20, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v37 = shufflevector <4 x float> %v20, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v38 = fadd <2 x float> %v36, %v37
  %v39 = extractelement <2 x float> %v38, i64 0
  %v40 = extractelement <2 x float> %v38, i64 1
  %v41 = fadd float %v39, %v40
  %v42 = fadd float 0x0000000000000000, %v41
  %v43 = fdiv float %v42, 0x4010000000000000
  %v44 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v45 = shufflevector <4 x float> %v44, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L46
L46:
  %v49 = phi i64 [ 0, %L18 ], [ %v60, %L47 ]
  %v50 = phi <4 x float> [ %v45, %L18 ], [ %v59, %L47 ]
  %v61 = icmp slt i64 %v49, 4
  br i1 %v61, label %L47, label %L48
L47:
  %v51 = mul nsw i64 4, %v13
  %v52 = add nsw i64 %v51, %v49
  %v53 = getelementptr inbounds float, ptr %v5, i64 %v52
  %v54 = load <4 x float>, ptr %v53, align 4
  %v55 = insertelement <4 x float> poison, float %v43, i64 0
  %v56 = shufflevector <4 x float> %v55, <4 x float> poison, <4 x i32> zeroinitializer
  %v57 = fsub <4 x float> %v54, %v56
  %v58 = fmul <4 x float> %v57, %v57
  %v59 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v57, <4 x float> %v57, <4 x float> %v50)
  %v60 = add nsw i64 %v49, 4
  br label %L46
L48:
  %v62 = shufflevector <4 x float> %v50, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v63 = shufflevector <4 x float> %v50, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v64 = fadd <2 x float> %v62, %v63
  %v65 = extractelement <2 x float> %v64, i64 0
  %v66 = extractelement <2 x float> %v64, i64 1
  %v67 = fadd float %v65, %v66
  %v68 = fadd float 0x0000000000000000, %v67
  %v69 = fdiv float %v68, 0x4010000000000000
  %v70 = fadd float %v69, 0x3EE4F8B580000000
  %v71 = call float @llvm.sqrt.f32(float %v70)
  %v72 = fdiv float 0x3FF0000000000000, %v71
  br label %L73
L73:
  %v76 = phi i64 [ 0, %L48 ], [ %v93, %L74 ]
  %v94 = icmp slt i64 %v76, 4
  br i1 %v94, label %L74, label %L75
L74:
  %v77 = mul nsw i64 4, %v13
  %v78 = add nsw i64 %v77, %v76
  %v79 = getelementptr inbounds float, ptr %v5, i64 %v78
  %v80 = load <4 x float>, ptr %v79, align 4
  %v81 = insertelement <4 x float> poison, float %v43, i64 0
  %v82 = shufflevector <4 x float> %v81, <4 x float> poison, <4 x i32> zeroinitializer
  %v83 = fsub <4 x float> %v80, %v82
  %v84 = insertelement <4 x float> poison, float %v72, i64 0
  %v85 = shufflevector <4 x float> %v84, <4 x float> poison, <4 x i32> zeroinitializer
  %v86 = fmul <4 x float> %v83, %v85
  %v87 = getelementptr inbounds float, ptr %v7, i64 %v76
  %v88 = load <4 x float>, ptr %v87, align 4
  %v89 = fmul <4 x float> %v86, %v88
  %v90 = mul nsw i64 4, %v13
  %v91 = add nsw i64 %v90, %v76
  %v92 = getelementptr inbounds float, ptr %v9, i64 %v91
  store <4 x float> %v89, ptr %v92, align 4
  %v93 = add nsw i64 %v76, 4
  br label %L73
L75:
  %v95 = add nsw i64 %v13, 1
  br label %L10
L12:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @llvm.sqrt.f32(float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
