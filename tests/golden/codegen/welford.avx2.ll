define dso_local i32 @welford(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  %v6 = insertelement <16 x float> poison, float 0x0000000000000000, i64 0
  %v7 = shufflevector <16 x float> %v6, <16 x float> poison, <16 x i32> zeroinitializer
  %v8 = insertelement <16 x float> poison, float 0x0000000000000000, i64 0
  %v9 = shufflevector <16 x float> %v8, <16 x float> poison, <16 x i32> zeroinitializer
  %v10 = insertelement <16 x float> poison, float 0x0000000000000000, i64 0
  %v11 = shufflevector <16 x float> %v10, <16 x float> poison, <16 x i32> zeroinitializer
  br label %L12
L12:
  %v15 = phi i64 [ 0, %entry ], [ %v29, %L13 ]
  %v16 = phi <16 x float> [ %v7, %entry ], [ %v26, %L13 ]
  %v17 = phi <16 x float> [ %v9, %entry ], [ %v28, %L13 ]
  %v18 = phi <16 x float> [ %v11, %entry ], [ %v23, %L13 ]
  %v30 = icmp slt i64 %v15, 4096
  br i1 %v30, label %L13, label %L14
L13:
  %v19 = getelementptr inbounds float, ptr %v1, i64 %v15
  %v20 = load <16 x float>, ptr %v19, align 4
  %v21 = insertelement <16 x float> poison, float 0x3FF0000000000000, i64 0
  %v22 = shufflevector <16 x float> %v21, <16 x float> poison, <16 x i32> zeroinitializer
  %v23 = fadd <16 x float> %v18, %v22
  %v24 = fsub <16 x float> %v20, %v16
  %v25 = fdiv <16 x float> %v24, %v23
  %v26 = fadd <16 x float> %v16, %v25
  %v27 = fsub <16 x float> %v20, %v26
  %v28 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v24, <16 x float> %v27, <16 x float> %v17)
  %v29 = add nsw i64 %v15, 16
  br label %L12
L14:
  %v31 = shufflevector <16 x float> %v16, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v32 = shufflevector <16 x float> %v16, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v33 = shufflevector <16 x float> %v17, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v34 = shufflevector <16 x float> %v17, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v35 = shufflevector <16 x float> %v18, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v36 = shufflevector <16 x float> %v18, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v37 = fadd <8 x float> %v35, %v36
  %v38 = fsub <8 x float> %v32, %v31
  %v39 = insertelement <8 x float> poison, float 0x0000000000000000, i64 0
  %v40 = shufflevector <8 x float> %v39, <8 x float> poison, <8 x i32> zeroinitializer
  %v41 = fcmp oeq <8 x float> %v37, %v40
  %v42 = insertelement <8 x float> poison, float 0x3FF0000000000000, i64 0
  %v43 = shufflevector <8 x float> %v42, <8 x float> poison, <8 x i32> zeroinitializer
  %v44 = select <8 x i1> %v41, <8 x float> %v43, <8 x float> %v37
  %v45 = fdiv <8 x float> %v36, %v44
  %v46 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v38, <8 x float> %v45, <8 x float> %v31)
  %v47 = fmul <8 x float> %v38, %v38
  %v48 = fmul <8 x float> %v35, %v45
  %v49 = fadd <8 x float> %v33, %v34
  %v50 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v47, <8 x float> %v48, <8 x float> %v49)
  %v51 = shufflevector <8 x float> %v46, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v52 = shufflevector <8 x float> %v46, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v53 = shufflevector <8 x float> %v50, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v54 = shufflevector <8 x float> %v50, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v55 = shufflevector <8 x float> %v37, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v56 = shufflevector <8 x float> %v37, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v57 = fadd <4 x float> %v55, %v56
  %v58 = fsub <4 x float> %v52, %v51
  %v59 = insertelement <4 x float> poison, float 0x0000000000000000, i64 0
  %v60 = shufflevector <4 x float> %v59, <4 x float> poison, <4 x i32> zeroinitializer
  %v61 = fcmp oeq <4 x float> %v57, %v60
  %v62 = insertelement <4 x float> poison, float 0x3FF0000000000000, i64 0
  %v63 = shufflevector <4 x float> %v62, <4 x float> poison, <4 x i32> zeroinitializer
  %v64 = select <4 x i1> %v61, <4 x float> %v63, <4 x float> %v57
  %v65 = fdiv <4 x float> %v56, %v64
  %v66 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v58, <4 x float> %v65, <4 x float> %v51)
  %v67 = fmul <4 x float> %v58, %v58
  %v68 = fmul <4 x float> %v55, %v65
  %v69 = fadd <4 x float> %v53, %v54
  %v70 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v67, <4 x float> %v68, <4 x float> %v69)
  %v71 = shufflevector <4 x float> %v66, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v72 = shufflevector <4 x float> %v66, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v73 = shufflevector <4 x float> %v70, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v74 = shufflevector <4 x float> %v70, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v75 = shufflevector <4 x float> %v57, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v76 = shufflevector <4 x float> %v57, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v77 = fadd <2 x float> %v75, %v76
  %v78 = fsub <2 x float> %v72, %v71
  %v79 = insertelement <2 x float> poison, float 0x0000000000000000, i64 0
  %v80 = shufflevector <2 x float> %v79, <2 x float> poison, <2 x i32> zeroinitializer
  %v81 = fcmp oeq <2 x float> %v77, %v80
  %v82 = insertelement <2 x float> poison, float 0x3FF0000000000000, i64 0
  %v83 = shufflevector <2 x float> %v82, <2 x float> poison, <2 x i32> zeroinitializer
  %v84 = select <2 x i1> %v81, <2 x float> %v83, <2 x float> %v77
  %v85 = fdiv <2 x float> %v76, %v84
  %v86 = call <2 x float> @llvm.fma.v2f32(<2 x float> %v78, <2 x float> %v85, <2 x float> %v71)
  %v87 = fmul <2 x float> %v78, %v78
  %v88 = fmul <2 x float> %v75, %v85
  %v89 = fadd <2 x float> %v73, %v74
  %v90 = call <2 x float> @llvm.fma.v2f32(<2 x float> %v87, <2 x float> %v88, <2 x float> %v89)
  %v91 = extractelement <2 x float> %v86, i64 0
  %v92 = extractelement <2 x float> %v86, i64 1
  %v93 = extractelement <2 x float> %v90, i64 0
  %v94 = extractelement <2 x float> %v90, i64 1
  %v95 = extractelement <2 x float> %v77, i64 0
  %v96 = extractelement <2 x float> %v77, i64 1
  %v97 = fadd float %v95, %v96
  %v98 = fsub float %v92, %v91
  %v99 = fcmp oeq float %v97, 0x0000000000000000
  %v100 = select i1 %v99, float 0x3FF0000000000000, float %v97
  %v101 = fdiv float %v96, %v100
  %v102 = call float @llvm.fma.f32(float %v98, float %v101, float %v91)
  %v103 = fmul float %v98, %v98
  %v104 = fmul float %v95, %v101
  %v105 = fadd float %v93, %v94
  %v106 = call float @llvm.fma.f32(float %v103, float %v104, float %v105)
  %v107 = getelementptr inbounds float, ptr %v3, i64 0
  store float %v102, ptr %v107, align 4
  %v108 = getelementptr inbounds float, ptr %v5, i64 0
  store float %v106, ptr %v108, align 4
  ret i32 0
}
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <2 x float> @llvm.fma.v2f32(<2 x float>, <2 x float>, <2 x float>)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare float @llvm.fma.f32(float, float, float)
attributes #0 = { nounwind "prefer-vector-width"="256" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
