define dso_local i32 @welford(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  %v6 = insertelement <64 x float> poison, float 0x0000000000000000, i64 0
  %v7 = shufflevector <64 x float> %v6, <64 x float> poison, <64 x i32> zeroinitializer
  %v8 = insertelement <64 x float> poison, float 0x0000000000000000, i64 0
  %v9 = shufflevector <64 x float> %v8, <64 x float> poison, <64 x i32> zeroinitializer
  %v10 = insertelement <64 x float> poison, float 0x0000000000000000, i64 0
  %v11 = shufflevector <64 x float> %v10, <64 x float> poison, <64 x i32> zeroinitializer
  br label %L12
L12:
  %v15 = phi i64 [ 0, %entry ], [ %v29, %L13 ]
  %v16 = phi <64 x float> [ %v7, %entry ], [ %v26, %L13 ]
  %v17 = phi <64 x float> [ %v9, %entry ], [ %v28, %L13 ]
  %v18 = phi <64 x float> [ %v11, %entry ], [ %v23, %L13 ]
  %v30 = icmp slt i64 %v15, 4096
  br i1 %v30, label %L13, label %L14
L13:
  %v19 = getelementptr inbounds float, ptr %v1, i64 %v15
  %v20 = load <64 x float>, ptr %v19, align 4
  %v21 = insertelement <64 x float> poison, float 0x3FF0000000000000, i64 0
  %v22 = shufflevector <64 x float> %v21, <64 x float> poison, <64 x i32> zeroinitializer
  %v23 = fadd <64 x float> %v18, %v22
  %v24 = fsub <64 x float> %v20, %v16
  %v25 = fdiv <64 x float> %v24, %v23
  %v26 = fadd <64 x float> %v16, %v25
  %v27 = fsub <64 x float> %v20, %v26
  %v28 = call <64 x float> @llvm.fma.v64f32(<64 x float> %v24, <64 x float> %v27, <64 x float> %v17)
  %v29 = add nsw i64 %v15, 64
  br label %L12
L14:
  %v31 = shufflevector <64 x float> %v16, <64 x float> poison, <32 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v32 = shufflevector <64 x float> %v16, <64 x float> poison, <32 x i32> <i32 32, i32 33, i32 34, i32 35, i32 36, i32 37, i32 38, i32 39, i32 40, i32 41, i32 42, i32 43, i32 44, i32 45, i32 46, i32 47, i32 48, i32 49, i32 50, i32 51, i32 52, i32 53, i32 54, i32 55, i32 56, i32 57, i32 58, i32 59, i32 60, i32 61, i32 62, i32 63>
  %v33 = shufflevector <64 x float> %v17, <64 x float> poison, <32 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v34 = shufflevector <64 x float> %v17, <64 x float> poison, <32 x i32> <i32 32, i32 33, i32 34, i32 35, i32 36, i32 37, i32 38, i32 39, i32 40, i32 41, i32 42, i32 43, i32 44, i32 45, i32 46, i32 47, i32 48, i32 49, i32 50, i32 51, i32 52, i32 53, i32 54, i32 55, i32 56, i32 57, i32 58, i32 59, i32 60, i32 61, i32 62, i32 63>
  %v35 = shufflevector <64 x float> %v18, <64 x float> poison, <32 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v36 = shufflevector <64 x float> %v18, <64 x float> poison, <32 x i32> <i32 32, i32 33, i32 34, i32 35, i32 36, i32 37, i32 38, i32 39, i32 40, i32 41, i32 42, i32 43, i32 44, i32 45, i32 46, i32 47, i32 48, i32 49, i32 50, i32 51, i32 52, i32 53, i32 54, i32 55, i32 56, i32 57, i32 58, i32 59, i32 60, i32 61, i32 62, i32 63>
  %v37 = fadd <32 x float> %v35, %v36
  %v38 = fsub <32 x float> %v32, %v31
  %v39 = insertelement <32 x float> poison, float 0x0000000000000000, i64 0
  %v40 = shufflevector <32 x float> %v39, <32 x float> poison, <32 x i32> zeroinitializer
  %v41 = fcmp oeq <32 x float> %v37, %v40
  %v42 = insertelement <32 x float> poison, float 0x3FF0000000000000, i64 0
  %v43 = shufflevector <32 x float> %v42, <32 x float> poison, <32 x i32> zeroinitializer
  %v44 = select <32 x i1> %v41, <32 x float> %v43, <32 x float> %v37
  %v45 = fdiv <32 x float> %v36, %v44
  %v46 = call <32 x float> @llvm.fma.v32f32(<32 x float> %v38, <32 x float> %v45, <32 x float> %v31)
  %v47 = fmul <32 x float> %v38, %v38
  %v48 = fmul <32 x float> %v35, %v45
  %v49 = fadd <32 x float> %v33, %v34
  %v50 = call <32 x float> @llvm.fma.v32f32(<32 x float> %v47, <32 x float> %v48, <32 x float> %v49)
  %v51 = shufflevector <32 x float> %v46, <32 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v52 = shufflevector <32 x float> %v46, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v53 = shufflevector <32 x float> %v50, <32 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v54 = shufflevector <32 x float> %v50, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v55 = shufflevector <32 x float> %v37, <32 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v56 = shufflevector <32 x float> %v37, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v57 = fadd <16 x float> %v55, %v56
  %v58 = fsub <16 x float> %v52, %v51
  %v59 = insertelement <16 x float> poison, float 0x0000000000000000, i64 0
  %v60 = shufflevector <16 x float> %v59, <16 x float> poison, <16 x i32> zeroinitializer
  %v61 = fcmp oeq <16 x float> %v57, %v60
  %v62 = insertelement <16 x float> poison, float 0x3FF0000000000000, i64 0
  %v63 = shufflevector <16 x float> %v62, <16 x float> poison, <16 x i32> zeroinitializer
  %v64 = select <16 x i1> %v61, <16 x float> %v63, <16 x float> %v57
  %v65 = fdiv <16 x float> %v56, %v64
  %v66 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v58, <16 x float> %v65, <16 x float> %v51)
  %v67 = fmul <16 x float> %v58, %v58
  %v68 = fmul <16 x float> %v55, %v65
  %v69 = fadd <16 x float> %v53, %v54
  %v70 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v67, <16 x float> %v68, <16 x float> %v69)
  %v71 = shufflevector <16 x float> %v66, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v72 = shufflevector <16 x float> %v66, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v73 = shufflevector <16 x float> %v70, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v74 = shufflevector <16 x float> %v70, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v75 = shufflevector <16 x float> %v57, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v76 = shufflevector <16 x float> %v57, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v77 = fadd <8 x float> %v75, %v76
  %v78 = fsub <8 x float> %v72, %v71
  %v79 = insertelement <8 x float> poison, float 0x0000000000000000, i64 0
  %v80 = shufflevector <8 x float> %v79, <8 x float> poison, <8 x i32> zeroinitializer
  %v81 = fcmp oeq <8 x float> %v77, %v80
  %v82 = insertelement <8 x float> poison, float 0x3FF0000000000000, i64 0
  %v83 = shufflevector <8 x float> %v82, <8 x float> poison, <8 x i32> zeroinitializer
  %v84 = select <8 x i1> %v81, <8 x float> %v83, <8 x float> %v77
  %v85 = fdiv <8 x float> %v76, %v84
  %v86 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v78, <8 x float> %v85, <8 x float> %v71)
  %v87 = fmul <8 x float> %v78, %v78
  %v88 = fmul <8 x float> %v75, %v85
  %v89 = fadd <8 x float> %v73, %v74
  %v90 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v87, <8 x float> %v88, <8 x float> %v89)
  %v91 = shufflevector <8 x float> %v86, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v92 = shufflevector <8 x float> %v86, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v93 = shufflevector <8 x float> %v90, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v94 = shufflevector <8 x float> %v90, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v95 = shufflevector <8 x float> %v77, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v96 = shufflevector <8 x float> %v77, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v97 = fadd <4 x float> %v95, %v96
  %v98 = fsub <4 x float> %v92, %v91
  %v99 = insertelement <4 x float> poison, float 0x0000000000000000, i64 0
  %v100 = shufflevector <4 x float> %v99, <4 x float> poison, <4 x i32> zeroinitializer
  %v101 = fcmp oeq <4 x float> %v97, %v100
  %v102 = insertelement <4 x float> poison, float 0x3FF0000000000000, i64 0
  %v103 = shufflevector <4 x float> %v102, <4 x float> poison, <4 x i32> zeroinitializer
  %v104 = select <4 x i1> %v101, <4 x float> %v103, <4 x float> %v97
  %v105 = fdiv <4 x float> %v96, %v104
  %v106 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v98, <4 x float> %v105, <4 x float> %v91)
  %v107 = fmul <4 x float> %v98, %v98
  %v108 = fmul <4 x float> %v95, %v105
  %v109 = fadd <4 x float> %v93, %v94
  %v110 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v107, <4 x float> %v108, <4 x float> %v109)
  %v111 = shufflevector <4 x float> %v106, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v112 = shufflevector <4 x float> %v106, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v113 = shufflevector <4 x float> %v110, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v114 = shufflevector <4 x float> %v110, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v115 = shufflevector <4 x float> %v97, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v116 = shufflevector <4 x float> %v97, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v117 = fadd <2 x float> %v115, %v116
  %v118 = fsub <2 x float> %v112, %v111
  %v119 = insertelement <2 x float> poison, float 0x0000000000000000, i64 0
  %v120 = shufflevector <2 x float> %v119, <2 x float> poison, <2 x i32> zeroinitializer
  %v121 = fcmp oeq <2 x float> %v117, %v120
  %v122 = insertelement <2 x float> poison, float 0x3FF0000000000000, i64 0
  %v123 = shufflevector <2 x float> %v122, <2 x float> poison, <2 x i32> zeroinitializer
  %v124 = select <2 x i1> %v121, <2 x float> %v123, <2 x float> %v117
  %v125 = fdiv <2 x float> %v116, %v124
  %v126 = call <2 x float> @llvm.fma.v2f32(<2 x float> %v118, <2 x float> %v125, <2 x float> %v111)
  %v127 = fmul <2 x float> %v118, %v118
  %v128 = fmul <2 x float> %v115, %v125
  %v129 = fadd <2 x float> %v113, %v114
  %v130 = call <2 x float> @llvm.fma.v2f32(<2 x float> %v127, <2 x float> %v128, <2 x float> %v129)
  %v131 = extractelement <2 x float> %v126, i64 0
  %v132 = extractelement <2 x float> %v126, i64 1
  %v133 = extractelement <2 x float> %v130, i64 0
  %v134 = extractelement <2 x float> %v130, i64 1
  %v135 = extractelement <2 x float> %v117, i64 0
  %v136 = extractelement <2 x float> %v117, i64 1
  %v137 = fadd float %v135, %v136
  %v138 = fsub float %v132, %v131
  %v139 = fcmp oeq float %v137, 0x0000000000000000
  %v140 = select i1 %v139, float 0x3FF0000000000000, float %v137
  %v141 = fdiv float %v136, %v140
  %v142 = call float @llvm.fma.f32(float %v138, float %v141, float %v131)
  %v143 = fmul float %v138, %v138
  %v144 = fmul float %v135, %v141
  %v145 = fadd float %v133, %v134
  %v146 = call float @llvm.fma.f32(float %v143, float %v144, float %v145)
  %v147 = getelementptr inbounds float, ptr %v3, i64 0
  store float %v142, ptr %v147, align 4
  %v148 = getelementptr inbounds float, ptr %v5, i64 0
  store float %v146, ptr %v148, align 4
  ret i32 0
}
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <2 x float> @llvm.fma.v2f32(<2 x float>, <2 x float>, <2 x float>)
declare <32 x float> @llvm.fma.v32f32(<32 x float>, <32 x float>, <32 x float>)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare <64 x float> @llvm.fma.v64f32(<64 x float>, <64 x float>, <64 x float>)
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare float @llvm.fma.f32(float, float, float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
