define dso_local i32 @row_scale(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr i64, ptr %sizes, i64 0
  %v5 = load i64, ptr %v4
  %v6 = getelementptr i64, ptr %sizes, i64 1
  %v7 = load i64, ptr %v6
  br label %L8
L8:
  %v11 = phi i64 [ %begin, %entry ], [ %v237, %L213 ]
  %v238 = icmp slt i64 %v11, %end
  br i1 %v238, label %L9, label %L10
L9:
  %v12 = insertelement <64 x float> poison, float 0xFFF0000000000000, i64 0
  %v13 = shufflevector <64 x float> %v12, <64 x float> poison, <64 x i32> zeroinitializer
  %v14 = and i64 %v7, -64
  br label %L15
L15:
  %v18 = phi i64 [ 0, %L9 ], [ %v28, %L16 ]
  %v19 = phi <64 x float> [ %v13, %L9 ], [ %v27, %L16 ]
  %v29 = icmp slt i64 %v18, %v14
  br i1 %v29, label %L16, label %L17
L16:
  %v20 = mul nsw i64 %v11, %v7
  %v21 = add nsw i64 %v18, %v20
  %v22 = getelementptr inbounds float, ptr %v1, i64 %v21
  %v23 = load <64 x float>, ptr %v22, align 4
  %v24 = fcmp ogt <64 x float> %v19, %v23
  %v25 = select <64 x i1> %v24, <64 x float> %v19, <64 x float> %v23
  %v26 = fcmp uno <64 x float> %v19, %v19
  %v27 = select <64 x i1> %v26, <64 x float> %v19, <64 x float> %v25
  %v28 = add nsw i64 %v18, 64
  br label %L15
L17:
  %v32 = sub i64 %v7, %v14
  %v33 = icmp sgt i64 %v32, 0
  br i1 %v33, label %L30, label %L31
L30:
  %v34 = trunc i64 %v32 to i32
  %v35 = insertelement <64 x i32> poison, i32 %v34, i64 0
  %v36 = shufflevector <64 x i32> %v35, <64 x i32> poison, <64 x i32> zeroinitializer
  %v37 = icmp sgt <64 x i32> %v36, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31, i32 32, i32 33, i32 34, i32 35, i32 36, i32 37, i32 38, i32 39, i32 40, i32 41, i32 42, i32 43, i32 44, i32 45, i32 46, i32 47, i32 48, i32 49, i32 50, i32 51, i32 52, i32 53, i32 54, i32 55, i32 56, i32 57, i32 58, i32 59, i32 60, i32 61, i32 62, i32 63>
  %v38 = mul nsw i64 %v11, %v7
  %v39 = add nsw i64 %v14, %v38
  %v40 = getelementptr inbounds float, ptr %v1, i64 %v39
  %v41 = call <64 x float> @llvm.masked.load.v64f32.p0(ptr align 4 %v40, <64 x i1> %v37, <64 x float> zeroinitializer)
  %v42 = fcmp ogt <64 x float> %v19, %v41
  %v43 = select <64 x i1> %v42, <64 x float> %v19, <64 x float> %v41
  %v44 = fcmp uno <64 x float> %v19, %v19
  %v45 = select <64 x i1> %v44, <64 x float> %v19, <64 x float> %v43
  %v46 = select <64 x i1> %v37, <64 x float> %v45, <64 x float> %v19
  br label %L31
L31:
  %v47 = phi <64 x float> [ %v46, %L30 ], [ %v19, %L17 ]
  %v48 = shufflevector <64 x float> %v47, <64 x float> poison, <32 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v49 = shufflevector <64 x float> %v47, <64 x float> poison, <32 x i32> <i32 32, i32 33, i32 34, i32 35, i32 36, i32 37, i32 38, i32 39, i32 40, i32 41, i32 42, i32 43, i32 44, i32 45, i32 46, i32 47, i32 48, i32 49, i32 50, i32 51, i32 52, i32 53, i32 54, i32 55, i32 56, i32 57, i32 58, i32 59, i32 60, i32 61, i32 62, i32 63>
  %v50 = fcmp ogt <32 x float> %v48, %v49
  %v51 = select <32 x i1> %v50, <32 x float> %v48, <32 x float> %v49
  %v52 = fcmp uno <32 x float> %v48, %v48
  %v53 = select <32 x i1> %v52, <32 x float> %v48, <32 x float> %v51
  %v54 = shufflevector <32 x float> %v53, <32 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v55 = shufflevector <32 x float> %v53, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v56 = fcmp ogt <16 x float> %v54, %v55
  %v57 = select <16 x i1> %v56, <16 x float> %v54, <16 x float> %v55
  %v58 = fcmp uno <16 x float> %v54, %v54
  %v59 = select <16 x i1> %v58, <16 x float> %v54, <16 x float> %v57
  %v60 = shufflevector <16 x float> %v59, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v61 = shufflevector <16 x float> %v59, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v62 = fcmp ogt <8 x float> %v60, %v61
  %v63 = select <8 x i1> %v62, <8 x float> %v60, <8 x float> %v61
  %v64 = fcmp uno <8 x float> %v60, %v60
  %v65 = select <8 x i1> %v64, <8 x float> %v60, <8 x float> %v63
  %v66 = shufflevector <8 x float> %v65, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v67 = shufflevector <8 x float> %v65, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v68 = fcmp ogt <4 x float> %v66, %v67
  %v69 = select <4 x i1> %v68, <4 x float> %v66, <4 x float> %v67
  %v70 = fcmp uno <4 x float> %v66, %v66
  %v71 = select <4 x i1> %v70, <4 x float> %v66, <4 x float> %v69
  %v72 = shufflevector <4 x float> %v71, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v73 = shufflevector <4 x float> %v71, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v74 = fcmp ogt <2 x float> %v72, %v73
  %v75 = select <2 x i1> %v74, <2 x float> %v72, <2 x float> %v73
  %v76 = fcmp uno <2 x float> %v72, %v72
  %v77 = select <2 x i1> %v76, <2 x float> %v72, <2 x float> %v75
  %v78 = extractelement <2 x float> %v77, i64 0
  %v79 = extractelement <2 x float> %v77, i64 1
  %v80 = fcmp ogt float %v78, %v79
  %v81 = select i1 %v80, float %v78, float %v79
  %v82 = fcmp uno float %v78, %v78
  %v83 = select i1 %v82, float %v78, float %v81
  %v84 = fcmp ogt float 0xFFF0000000000000, %v83
  %v85 = select i1 %v84, float 0xFFF0000000000000, float %v83
  %v86 = fcmp uno float 0xFFF0000000000000, 0xFFF0000000000000
  %v87 = select i1 %v86, float 0xFFF0000000000000, float %v85
  %v88 = insertelement <64 x float> poison, float 0x8000000000000000, i64 0
  %v89 = shufflevector <64 x float> %v88, <64 x float> poison, <64 x i32> zeroinitializer
  %v90 = and i64 %v7, -64
  br label %L91
L91:
  %v94 = phi i64 [ 0, %L31 ], [ %v144, %L103 ]
  %v95 = phi <64 x float> [ %v89, %L31 ], [ %v143, %L103 ]
  %v145 = icmp slt i64 %v94, %v90
  br i1 %v145, label %L92, label %L93
L92:
  %v96 = add nsw i64 %v94, 2097152
  %v97 = icmp slt i64 %v96, %v90
  %v98 = select i1 %v97, i64 %v96, i64 %v90
  %v99 = insertelement <64 x float> poison, float 0x8000000000000000, i64 0
  %v100 = shufflevector <64 x float> %v99, <64 x float> poison, <64 x i32> zeroinitializer
  br label %L101
L101:
  %v104 = phi i64 [ %v94, %L92 ], [ %v141, %L113 ]
  %v105 = phi <64 x float> [ %v100, %L92 ], [ %v140, %L113 ]
  %v142 = icmp slt i64 %v104, %v98
  br i1 %v142, label %L102, label %L103
L102:
  %v106 = add nsw i64 %v104, 65536
  %v107 = icmp slt i64 %v106, %v98
  %v108 = select i1 %v107, i64 %v106, i64 %v98
  %v109 = insertelement <64 x float> poison, float 0x8000000000000000, i64 0
  %v110 = shufflevector <64 x float> %v109, <64 x float> poison, <64 x i32> zeroinitializer
  br label %L111
L111:
  %v114 = phi i64 [ %v104, %L102 ], [ %v138, %L123 ]
  %v115 = phi <64 x float> [ %v110, %L102 ], [ %v137, %L123 ]
  %v139 = icmp slt i64 %v114, %v108
  br i1 %v139, label %L112, label %L113
L112:
  %v116 = add nsw i64 %v114, 2048
  %v117 = icmp slt i64 %v116, %v108
  %v118 = select i1 %v117, i64 %v116, i64 %v108
  %v119 = insertelement <64 x float> poison, float 0x8000000000000000, i64 0
  %v120 = shufflevector <64 x float> %v119, <64 x float> poison, <64 x i32> zeroinitializer
  br label %L121
L121:
  %v124 = phi i64 [ %v114, %L112 ], [ %v135, %L122 ]
  %v125 = phi <64 x float> [ %v120, %L112 ], [ %v134, %L122 ]
  %v136 = icmp slt i64 %v124, %v118
  br i1 %v136, label %L122, label %L123
L122:
  %v126 = mul nsw i64 %v11, %v7
  %v127 = add nsw i64 %v124, %v126
  %v128 = getelementptr inbounds float, ptr %v1, i64 %v127
  %v129 = load <64 x float>, ptr %v128, align 4
  %v130 = insertelement <64 x float> poison, float %v87, i64 0
  %v131 = shufflevector <64 x float> %v130, <64 x float> poison, <64 x i32> zeroinitializer
  %v132 = fsub <64 x float> %v129, %v131
  %v133 = fmul <64 x float> %v132, %v132
  %v134 = call <64 x float> @llvm.fmuladd.v64f32(<64 x float> %v132, <64 x float> %v132, <64 x float> %v125)
  %v135 = add nsw i64 %v124, 64
  br label %L121
L123:
  %v137 = fadd <64 x float> %v115, %v125
  %v138 = add nsw i64 %v114, 2048
  br label %L111
L113:
  %v140 = fadd <64 x float> %v105, %v115
  %v141 = add nsw i64 %v104, 65536
  br label %L101
L103:
  %v143 = fadd <64 x float> %v95, %v105
  %v144 = add nsw i64 %v94, 2097152
  br label %L91
L93:
  %v148 = sub i64 %v7, %v90
  %v149 = icmp sgt i64 %v148, 0
  br i1 %v149, label %L146, label %L147
L146:
  %v150 = trunc i64 %v148 to i32
  %v151 = insertelement <64 x i32> poison, i32 %v150, i64 0
  %v152 = shufflevector <64 x i32> %v151, <64 x i32> poison, <64 x i32> zeroinitializer
  %v153 = icmp sgt <64 x i32> %v152, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31, i32 32, i32 33, i32 34, i32 35, i32 36, i32 37, i32 38, i32 39, i32 40, i32 41, i32 42, i32 43, i32 44, i32 45, i32 46, i32 47, i32 48, i32 49, i32 50, i32 51, i32 52, i32 53, i32 54, i32 55, i32 56, i32 57, i32 58, i32 59, i32 60, i32 61, i32 62, i32 63>
  %v154 = mul nsw i64 %v11, %v7
  %v155 = add nsw i64 %v90, %v154
  %v156 = getelementptr inbounds float, ptr %v1, i64 %v155
  %v157 = call <64 x float> @llvm.masked.load.v64f32.p0(ptr align 4 %v156, <64 x i1> %v153, <64 x float> zeroinitializer)
  %v158 = insertelement <64 x float> poison, float %v87, i64 0
  %v159 = shufflevector <64 x float> %v158, <64 x float> poison, <64 x i32> zeroinitializer
  %v160 = fsub <64 x float> %v157, %v159
  %v161 = fmul <64 x float> %v160, %v160
  %v162 = call <64 x float> @llvm.fmuladd.v64f32(<64 x float> %v160, <64 x float> %v160, <64 x float> %v95)
  %v163 = select <64 x i1> %v153, <64 x float> %v162, <64 x float> %v95
  br label %L147
L147:
  %v164 = phi <64 x float> [ %v163, %L146 ], [ %v95, %L93 ]
  %v165 = shufflevector <64 x float> %v164, <64 x float> poison, <32 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v166 = shufflevector <64 x float> %v164, <64 x float> poison, <32 x i32> <i32 32, i32 33, i32 34, i32 35, i32 36, i32 37, i32 38, i32 39, i32 40, i32 41, i32 42, i32 43, i32 44, i32 45, i32 46, i32 47, i32 48, i32 49, i32 50, i32 51, i32 52, i32 53, i32 54, i32 55, i32 56, i32 57, i32 58, i32 59, i32 60, i32 61, i32 62, i32 63>
  %v167 = fadd <32 x float> %v165, %v166
  %v168 = shufflevector <32 x float> %v167, <32 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v169 = shufflevector <32 x float> %v167, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v170 = fadd <16 x float> %v168, %v169
  %v171 = shufflevector <16 x float> %v170, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v172 = shufflevector <16 x float> %v170, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v173 = fadd <8 x float> %v171, %v172
  %v174 = shufflevector <8 x float> %v173, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v175 = shufflevector <8 x float> %v173, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v176 = fadd <4 x float> %v174, %v175
  %v177 = shufflevector <4 x float> %v176, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v178 = shufflevector <4 x float> %v176, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v179 = fadd <2 x float> %v177, %v178
  %v180 = extractelement <2 x float> %v179, i64 0
  %v181 = extractelement <2 x float> %v179, i64 1
  %v182 = fadd float %v180, %v181
  %v183 = fadd float 0x0000000000000000, %v182
  %v184 = and i64 %v7, -64
  br label %L185
L185:
  %v188 = phi i64 [ 0, %L147 ], [ %v210, %L186 ]
  %v211 = icmp slt i64 %v188, %v184
  br i1 %v211, label %L186, label %L187
L186:
  %v189 = mul nsw i64 %v11, %v7
  %v190 = add nsw i64 %v188, %v189
  %v191 = getelementptr inbounds float, ptr %v1, i64 %v190
  %v192 = load <64 x float>, ptr %v191, align 4
  %v193 = insertelement <64 x float> poison, float %v87, i64 0
  %v194 = shufflevector <64 x float> %v193, <64 x float> poison, <64 x i32> zeroinitializer
  %v195 = fsub <64 x float> %v192, %v194
  %v196 = fmul <64 x float> %v195, %v195
  %v197 = insertelement <64 x float> poison, float %v183, i64 0
  %v198 = shufflevector <64 x float> %v197, <64 x float> poison, <64 x i32> zeroinitializer
  %v199 = fdiv <64 x float> %v196, %v198
  %v200 = mul nsw i64 %v11, %v7
  %v201 = add nsw i64 %v188, %v200
  %v202 = getelementptr inbounds float, ptr %v3, i64 %v201
  %v203 = shufflevector <64 x float> %v199, <64 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  store <16 x float> %v203, ptr %v202, align 4
  %v204 = shufflevector <64 x float> %v199, <64 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v205 = getelementptr inbounds float, ptr %v202, i64 16
  store <16 x float> %v204, ptr %v205, align 4
  %v206 = shufflevector <64 x float> %v199, <64 x float> poison, <16 x i32> <i32 32, i32 33, i32 34, i32 35, i32 36, i32 37, i32 38, i32 39, i32 40, i32 41, i32 42, i32 43, i32 44, i32 45, i32 46, i32 47>
  %v207 = getelementptr inbounds float, ptr %v202, i64 32
  store <16 x float> %v206, ptr %v207, align 4
  %v208 = shufflevector <64 x float> %v199, <64 x float> poison, <16 x i32> <i32 48, i32 49, i32 50, i32 51, i32 52, i32 53, i32 54, i32 55, i32 56, i32 57, i32 58, i32 59, i32 60, i32 61, i32 62, i32 63>
  %v209 = getelementptr inbounds float, ptr %v202, i64 48
  store <16 x float> %v208, ptr %v209, align 4
  %v210 = add nsw i64 %v188, 64
  br label %L185
L187:
  %v214 = sub i64 %v7, %v184
  %v215 = icmp sgt i64 %v214, 0
  br i1 %v215, label %L212, label %L213
L212:
  %v216 = trunc i64 %v214 to i32
  %v217 = insertelement <64 x i32> poison, i32 %v216, i64 0
  %v218 = shufflevector <64 x i32> %v217, <64 x i32> poison, <64 x i32> zeroinitializer
  %v219 = icmp sgt <64 x i32> %v218, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31, i32 32, i32 33, i32 34, i32 35, i32 36, i32 37, i32 38, i32 39, i32 40, i32 41, i32 42, i32 43, i32 44, i32 45, i32 46, i32 47, i32 48, i32 49, i32 50, i32 51, i32 52, i32 53, i32 54, i32 55, i32 56, i32 57, i32 58, i32 59, i32 60, i32 61, i32 62, i32 63>
  %v220 = mul nsw i64 %v11, %v7
  %v221 = add nsw i64 %v184, %v220
  %v222 = getelementptr inbounds float, ptr %v1, i64 %v221
  %v223 = call <64 x float> @llvm.masked.load.v64f32.p0(ptr align 4 %v222, <64 x i1> %v219, <64 x float> zeroinitializer)
  %v224 = insertelement <64 x float> poison, float %v87, i64 0
  %v225 = shufflevector <64 x float> %v224, <64 x float> poison, <64 x i32> zeroinitializer
  %v226 = fsub <64 x float> %v223, %v225
  %v227 = fmul <64 x float> %v226, %v226
  %v228 = insertelement <64 x float> poison, float %v183, i64 0
  %v229 = shufflevector <64 x float> %v228, <64 x float> poison, <64 x i32> zeroinitializer
  %v230 = insertelement <64 x float> poison, float 0x3FF0000000000000, i64 0
  %v231 = shufflevector <64 x float> %v230, <64 x float> poison, <64 x i32> zeroinitializer
  %v232 = select <64 x i1> %v219, <64 x float> %v229, <64 x float> %v231
  %v233 = fdiv <64 x float> %v227, %v232
  %v234 = mul nsw i64 %v11, %v7
  %v235 = add nsw i64 %v184, %v234
  %v236 = getelementptr inbounds float, ptr %v3, i64 %v235
  call void @llvm.masked.store.v64f32.p0(<64 x float> %v233, ptr align 4 %v236, <64 x i1> %v219)
  br label %L213
L213:
  %v237 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
declare <64 x float> @llvm.fmuladd.v64f32(<64 x float>, <64 x float>, <64 x float>)
declare <64 x float> @llvm.masked.load.v64f32.p0(ptr, <64 x i1>, <64 x float>)
declare void @llvm.masked.store.v64f32.p0(<64 x float>, ptr, <64 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
