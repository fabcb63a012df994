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
  %v10 = getelementptr ptr, ptr %buffers, i64 5
  %v11 = load ptr, ptr %v10
  %v12 = getelementptr ptr, ptr %buffers, i64 6
  %v13 = load ptr, ptr %v12
  br label %L14
L14:
  %v17 = phi i64 [ %begin, %entry ], [ %v105, %L82 ]
  %v106 = icmp slt i64 %v17, %end
  br i1 %v106, label %L15, label %L16
L15:
  %v18 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v19 = shufflevector <4 x float> %v18, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L20
L20:
  %v23 = phi i64 [ 0, %L15 ], [ %v41, %L21 ]
  %v24 = phi <4 x float> [ %v19, %L15 ], [ %v37, %L21 ]
  %v42 = icmp slt i64 %v23, 4
  br i1 %v42, label %L21, label %L22
L21:
  %v25 = mul nsw i64 4, %v17
  %v26 = add nsw i64 %v25, %v23
  %v27 = getelementptr inbounds float, ptr %v1, i64 %v26
  %v28 = load <4 x float>, ptr %v27, align 4
  %v29 = mul nsw i64 4, %v17
  %v30 = add nsw i64 %v29, %v23
  %v31 = getelementptr inbounds float, ptr %v3, i64 %v30
  %v32 = load <4 x float>, ptr %v31, align 4
  %v33 = getelementptr inbounds float, ptr %v5, i64 %v23
  %v34 = load <4 x float>, ptr %v33, align 4
  %v35 = fadd <4 x float> %v32, %v34
  %v36 = fadd <4 x float> %v28, %v35
  %v37 = fadd <4 x float> %v24, %v36
  %v38 = mul nsw i64 4, %v17
  %v39 = add nsw i64 %v38, %v23
  %v40 = getelementptr inbounds float, ptr %v7, i64 %v39
  store <4 x float> %v36, ptr %v40, align 4
  %v41 = add nsw i64 %v23, 4
  br label %L20
L22:
  %v43 = shufflevector <4 x float> %v24, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v44 = shufflevector <4 x float> %v24, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v45 = fadd <2 x float> %v43, %v44
  %v46 = extractelement <2 x float> %v45, i64 0
  %v47 = extractelement <2 x float> %v45, i64 1
  %v48 = fadd float %v46, %v47
  %v49 = fadd float 0x0000000000000000, %v48
  %v50 = fdiv float %v49, 0x4010000000000000
  %v51 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v52 = shufflevector <4 x float> %v51, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L53
L53:
  %v56 = phi i64 [ 0, %L22 ], [ %v67, %L54 ]
  %v57 = phi <4 x float> [ %v52, %L22 ], [ %v66, %L54 ]
  %v68 = icmp slt i64 %v56, 4
  br i1 %v68, label %L54, label %L55
L54:
  %v58 = mul nsw i64 4, %v17
  %v59 = add nsw i64 %v58, %v56
  %v60 = getelementptr inbounds float, ptr %v7, i64 %v59
  %v61 = load <4 x float>, ptr %v60, align 4
  %v62 = insertelement <4 x float> poison, float %v50, i64 0
  %v63 = shufflevector <4 x float> %v62, <4 x float> poison, <4 x i32> zeroinitializer
  %v64 = fsub <4 x float> %v61, %v63
  %v65 = fmul <4 x float> %v64, %v64
  %v66 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v64, <4 x float> %v64, <4 x float> %v57)
  %v67 = add nsw i64 %v56, 4
  br label %L53
L55:
  %v69 = shufflevector <4 x float> %v57, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v70 = shufflevector <4 x float> %v57, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v71 = fadd <2 x float> %v69, %v70
  %v72 = extractelement <2 x float> %v71, i64 0
  %v73 = extractelement <2 x float> %v71, i64 1
  %v74 = fadd float %v72, %v73
  %v75 = fadd float 0x0000000000000000, %v74
  %v76 = fdiv float %v75, 0x4010000000000000
  %v77 = fadd float %v76, 0x3EE4F8B580000000
  %v78 = call float @llvm.sqrt.f32(float %v77)
  %v79 = fdiv float 0x3FF0000000000000, %v78
  br label %L80
L80:
  %v83 = phi i64 [ 0, %L55 ], [ %v103, %L81 ]
  %v104 = icmp slt i64 %v83, 4
  br i1 %v104, label %L81, label %L82
L81:
  %v84 = mul nsw i64 4, %v17
  %v85 = add nsw i64 %v84, %v83
  %v86 = getelementptr inbounds float, ptr %v7, i64 %v85
  %v87 = load <4 x float>, ptr %v86, align 4
  %v88 = insertelement <4 x float> poison, float %v50, i64 0
  %v89 = shufflevector <4 x float> %v88, <4 x float> poison, <4 x i32> zeroinitializer
  %v90 = fsub <4 x float> %v87, %v89
  %v91 = insertelement <4 x float> poison, float %v79, i64 0
  %v92 = shufflevector <4 x float> %v91, <4 x float> poison, <4 x i32> zeroinitializer
  %v93 = fmul <4 x float> %v90, %v92
  %v94 = getelementptr inbounds float, ptr %v9, i64 %v83
  %v95 = load <4 x float>, ptr %v94, align 4
  %v96 = fmul <4 x float> %v93, %v95
  %v97 = getelementptr inbounds float, ptr %v11, i64 %v83
  %v98 = load <4 x float>, ptr %v97, align 4
  %v99 = fadd <4 x float> %v96, %v98
  %v100 = mul nsw i64 4, %v17
  %v101 = add nsw i64 %v100, %v83
  %v102 = getelementptr inbounds float, ptr %v13, i64 %v101
  store <4 x float> %v99, ptr %v102, align 4
  %v103 = add nsw i64 %v83, 4
  br label %L80
L82:
  %v105 = add nsw i64 %v17, 1
  br label %L14
L16:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @llvm.sqrt.f32(float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
