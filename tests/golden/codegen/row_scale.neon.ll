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
  %v11 = phi i64 [ %begin, %entry ], [ %v235, %L221 ]
  %v236 = icmp slt i64 %v11, %end
  br i1 %v236, label %L9, label %L10
L9:
  %v12 = insertelement <16 x float> poison, float 0xFFF0000000000000, i64 0
  %v13 = shufflevector <16 x float> %v12, <16 x float> poison, <16 x i32> zeroinitializer
  %v14 = and i64 %v7, -16
  br label %L15
L15:
  %v18 = phi i64 [ 0, %L9 ], [ %v28, %L16 ]
  %v19 = phi <16 x float> [ %v13, %L9 ], [ %v27, %L16 ]
  %v29 = icmp slt i64 %v18, %v14
  br i1 %v29, label %L16, label %L17
L16:
  %v20 = mul nsw i64 %v11, %v7
  %v21 = add nsw i64 %v18, %v20
  %v22 = getelementptr inbounds float, ptr %v1, i64 %v21
  %v23 = load <16 x float>, ptr %v22, align 4
  %v24 = fcmp ogt <16 x float> %v19, %v23
  %v25 = select <16 x i1> %v24, <16 x float> %v19, <16 x float> %v23
  %v26 = fcmp uno <16 x float> %v19, %v19
  %v27 = select <16 x i1> %v26, <16 x float> %v19, <16 x float> %v25
  %v28 = add nsw i64 %v18, 16
  br label %L15
L17:
  %v30 = shufflevector <16 x float> %v19, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v31 = shufflevector <16 x float> %v19, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v32 = fcmp ogt <8 x float> %v30, %v31
  %v33 = select <8 x i1> %v32, <8 x float> %v30, <8 x float> %v31
  %v34 = fcmp uno <8 x float> %v30, %v30
  %v35 = select <8 x i1> %v34, <8 x float> %v30, <8 x float> %v33
  %v36 = shufflevector <8 x float> %v35, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v37 = shufflevector <8 x float> %v35, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v38 = fcmp ogt <4 x float> %v36, %v37
  %v39 = select <4 x i1> %v38, <4 x float> %v36, <4 x float> %v37
  %v40 = fcmp uno <4 x float> %v36, %v36
  %v41 = select <4 x i1> %v40, <4 x float> %v36, <4 x float> %v39
  %v42 = shufflevector <4 x float> %v41, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v43 = shufflevector <4 x float> %v41, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v44 = fcmp ogt <2 x float> %v42, %v43
  %v45 = select <2 x i1> %v44, <2 x float> %v42, <2 x float> %v43
  %v46 = fcmp uno <2 x float> %v42, %v42
  %v47 = select <2 x i1> %v46, <2 x float> %v42, <2 x float> %v45
  %v48 = extractelement <2 x float> %v47, i64 0
  %v49 = extractelement <2 x float> %v47, i64 1
  %v50 = fcmp ogt float %v48, %v49
  %v51 = select i1 %v50, float %v48, float %v49
  %v52 = fcmp uno float %v48, %v48
  %v53 = select i1 %v52, float %v48, float %v51
  %v54 = fcmp ogt float 0xFFF0000000000000, %v53
  %v55 = select i1 %v54, float 0xFFF0000000000000, float %v53
  %v56 = fcmp uno float 0xFFF0000000000000, 0xFFF0000000000000
  %v57 = select i1 %v56, float 0xFFF0000000000000, float %v55
  br label %L58
L58:
  %v61 = phi i64 [ %v14, %L17 ], [ %v71, %L59 ]
  %v62 = phi float [ %v57, %L17 ], [ %v70, %L59 ]
  %v72 = icmp slt i64 %v61, %v7
  br i1 %v72, label %L59, label %L60
L59:
  %v63 = mul nsw i64 %v11, %v7
  %v64 = add nsw i64 %v61, %v63
  %v65 = getelementptr inbounds float, ptr %v1, i64 %v64
  %v66 = load float, ptr %v65, align 4
  %v67 = fcmp ogt float %v62, %v66
  %v68 = select i1 %v67, float %v62, float %v66
  %v69 = fcmp uno float %v62, %v62
  %v70 = select i1 %v69, float %v62, float %v68
  %v71 = add nsw i64 %v61, 1
  br label %L58
L60:
  %v73 = insertelement <16 x float> poison, float 0x8000000000000000, i64 0
  %v74 = shufflevector <16 x float> %v73, <16 x float> poison, <16 x i32> zeroinitializer
  %v75 = and i64 %v7, -16
  br label %L76
L76:
  %v79 = phi i64 [ 0, %L60 ], [ %v129, %L88 ]
  %v80 = phi <16 x float> [ %v74, %L60 ], [ %v128, %L88 ]
  %v130 = icmp slt i64 %v79, %v75
  br i1 %v130, label %L77, label %L78
L77:
  %v81 = add nsw i64 %v79, 524288
  %v82 = icmp slt i64 %v81, %v75
  %v83 = select i1 %v82, i64 %v81, i64 %v75
  %v84 = insertelement <16 x float> poison, float 0x8000000000000000, i64 0
  %v85 = shufflevector <16 x float> %v84, <16 x float> poison, <16 x i32> zeroinitializer
  br label %L86
L86:
  %v89 = phi i64 [ %v79, %L77 ], [ %v126, %L98 ]
  %v90 = phi <16 x float> [ %v85, %L77 ], [ %v125, %L98 ]
  %v127 = icmp slt i64 %v89, %v83
  br i1 %v127, label %L87, label %L88
L87:
  %v91 = add nsw i64 %v89, 16384
  %v92 = icmp slt i64 %v91, %v83
  %v93 = select i1 %v92, i64 %v91, i64 %v83
  %v94 = insertelement <16 x float> poison, float 0x8000000000000000, i64 0
  %v95 = shufflevector <16 x float> %v94, <16 x float> poison, <16 x i32> zeroinitializer
  br label %L96
L96:
  %v99 = phi i64 [ %v89, %L87 ], [ %v123, %L108 ]
  %v100 = phi <16 x float> [ %v95, %L87 ], [ %v122, %L108 ]
  %v124 = icmp slt i64 %v99, %v93
  br i1 %v124, label %L97, label %L98
L97:
  %v101 = add nsw i64 %v99, 512
  %v102 = icmp slt i64 %v101, %v93
  %v103 = select i1 %v102, i64 %v101, i64 %v93
  %v104 = insertelement <16 x float> poison, float 0x8000000000000000, i64 0
  %v105 = shufflevector <16 x float> %v104, <16 x float> poison, <16 x i32> zeroinitializer
  br label %L106
L106:
  %v109 = phi i64 [ %v99, %L97 ], [ %v120, %L107 ]
  %v110 = phi <16 x float> [ %v105, %L97 ], [ %v119, %L107 ]
  %v121 = icmp slt i64 %v109, %v103
  br i1 %v121, label %L107, label %L108
L107:
  %v111 = mul nsw i64 %v11, %v7
  %v112 = add nsw i64 %v109, %v111
  %v113 = getelementptr inbounds float, ptr %v1, i64 %v112
  %v114 = load <16 x float>, ptr %v113, align 4
  %v115 = insertelement <16 x float> poison, float %v62, i64 0
  %v116 = shufflevector <16 x float> %v115, <16 x float> poison, <16 x i32> zeroinitializer
  %v117 = fsub <16 x float> %v114, %v116
  %v118 = fmul <16 x float> %v117, %v117
  %v119 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v117, <16 x float> %v117, <16 x float> %v110)
  %v120 = add nsw i64 %v109, 16
  br label %L106
L108:
  %v122 = fadd <16 x float> %v100, %v110
  %v123 = add nsw i64 %v99, 512
  br label %L96
L98:
  %v125 = fadd <16 x float> %v90, %v100
  %v126 = add nsw i64 %v89, 16384
  br label %L86
L88:
  %v128 = fadd <16 x float> %v80, %v90
  %v129 = add nsw i64 %v79, 524288
  br label %L76
L78:
  %v131 = shufflevector <16 x float> %v80, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v132 = shufflevector <16 x float> %v80, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v133 = fadd <8 x float> %v131, %v132
  %v134 = shufflevector <8 x float> %v133, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v135 = shufflevector <8 x float> %v133, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v136 = fadd <4 x float> %v134, %v135
  %v137 = shufflevector <4 x float> %v136, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v138 = shufflevector <4 x float> %v136, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v139 = fadd <2 x float> %v137, %v138
  %v140 = extractelement <2 x float> %v139, i64 0
  %v141 = extractelement <2 x float> %v139, i64 1
  %v142 = fadd float %v140, %v141
  %v143 = fadd float 0x0000000000000000, %v142
  br label %L144
L144:
  %v147 = phi i64 [ %v75, %L78 ], [ %v189, %L154 ]
  %v148 = phi float [ %v143, %L78 ], [ %v188, %L154 ]
  %v190 = icmp slt i64 %v147, %v7
  br i1 %v190, label %L145, label %L146
L145:
  %v149 = add nsw i64 %v147, 32768
  %v150 = icmp slt i64 %v149, %v7
  %v151 = select i1 %v150, i64 %v149, i64 %v7
  br label %L152
L152:
  %v155 = phi i64 [ %v147, %L145 ], [ %v186, %L162 ]
  %v156 = phi float [ 0x8000000000000000, %L145 ], [ %v185, %L162 ]
  %v187 = icmp slt i64 %v155, %v151
  br i1 %v187, label %L153, label %L154
L153:
  %v157 = add nsw i64 %v155, 1024
  %v158 = icmp slt i64 %v157, %v151
  %v159 = select i1 %v158, i64 %v157, i64 %v151
  br label %L160
L160:
  %v163 = phi i64 [ %v155, %L153 ], [ %v183, %L170 ]
  %v164 = phi float [ 0x8000000000000000, %L153 ], [ %v182, %L170 ]
  %v184 = icmp slt i64 %v163, %v159
  br i1 %v184, label %L161, label %L162
L161:
  %v165 = add nsw i64 %v163, 32
  %v166 = icmp slt i64 %v165, %v159
  %v167 = select i1 %v166, i64 %v165, i64 %v159
  br label %L168
L168:
  %v171 = phi i64 [ %v163, %L161 ], [ %v180, %L169 ]
  %v172 = phi float [ 0x8000000000000000, %L161 ], [ %v179, %L169 ]
  %v181 = icmp slt i64 %v171, %v167
  br i1 %v181, label %L169, label %L170
L169:
  %v173 = mul nsw i64 %v11, %v7
  %v174 = add nsw i64 %v171, %v173
  %v175 = getelementptr inbounds float, ptr %v1, i64 %v174
  %v176 = load float, ptr %v175, align 4
  %v177 = fsub float %v176, %v62
  %v178 = fmul float %v177, %v177
  %v179 = call float @llvm.fmuladd.f32(float %v177, float %v177, float %v172)
  %v180 = add nsw i64 %v171, 1
  br label %L168
L170:
  %v182 = fadd float %v164, %v172
  %v183 = add nsw i64 %v163, 32
  br label %L160
L162:
  %v185 = fadd float %v156, %v164
  %v186 = add nsw i64 %v155, 1024
  br label %L152
L154:
  %v188 = fadd float %v148, %v156
  %v189 = add nsw i64 %v147, 32768
  br label %L144
L146:
  %v191 = and i64 %v7, -16
  br label %L192
L192:
  %v195 = phi i64 [ 0, %L146 ], [ %v217, %L193 ]
  %v218 = icmp slt i64 %v195, %v191
  br i1 %v218, label %L193, label %L194
L193:
  %v196 = mul nsw i64 %v11, %v7
  %v197 = add nsw i64 %v195, %v196
  %v198 = getelementptr inbounds float, ptr %v1, i64 %v197
  %v199 = load <16 x float>, ptr %v198, align 4
  %v200 = insertelement <16 x float> poison, float %v62, i64 0
  %v201 = shufflevector <16 x float> %v200, <16 x float> poison, <16 x i32> zeroinitializer
  %v202 = fsub <16 x float> %v199, %v201
  %v203 = fmul <16 x float> %v202, %v202
  %v204 = insertelement <16 x float> poison, float %v148, i64 0
  %v205 = shufflevector <16 x float> %v204, <16 x float> poison, <16 x i32> zeroinitializer
  %v206 = fdiv <16 x float> %v203, %v205
  %v207 = mul nsw i64 %v11, %v7
  %v208 = add nsw i64 %v195, %v207
  %v209 = getelementptr inbounds float, ptr %v3, i64 %v208
  %v210 = shufflevector <16 x float> %v206, <16 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  store <4 x float> %v210, ptr %v209, align 4
  %v211 = shufflevector <16 x float> %v206, <16 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v212 = getelementptr inbounds float, ptr %v209, i64 4
  store <4 x float> %v211, ptr %v212, align 4
  %v213 = shufflevector <16 x float> %v206, <16 x float> poison, <4 x i32> <i32 8, i32 9, i32 10, i32 11>
  %v214 = getelementptr inbounds float, ptr %v209, i64 8
  store <4 x float> %v213, ptr %v214, align 4
  %v215 = shufflevector <16 x float> %v206, <16 x float> poison, <4 x i32> <i32 12, i32 13, i32 14, i32 15>
  %v216 = getelementptr inbounds float, ptr %v209, i64 12
  store <4 x float> %v215, ptr %v216, align 4
  %v217 = add nsw i64 %v195, 16
  br label %L192
L194:
  br label %L219
L219:
  %v222 = phi i64 [ %v191, %L194 ], [ %v233, %L220 ]
  %v234 = icmp slt i64 %v222, %v7
  br i1 %v234, label %L220, label %L221
L220:
  %v223 = mul nsw i64 %v11, %v7
  %v224 = add nsw i64 %v222, %v223
  %v225 = getelementptr inbounds float, ptr %v1, i64 %v224
  %v226 = load float, ptr %v225, align 4
  %v227 = fsub float %v226, %v62
  %v228 = fmul float %v227, %v227
  %v229 = fdiv float %v228, %v148
  %v230 = mul nsw i64 %v11, %v7
  %v231 = add nsw i64 %v222, %v230
  %v232 = getelementptr inbounds float, ptr %v3, i64 %v231
  store float %v229, ptr %v232, align 4
  %v233 = add nsw i64 %v222, 1
  br label %L219
L221:
  %v235 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
declare <16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare float @llvm.fmuladd.f32(float, float, float)
attributes #0 = { nounwind "prefer-vector-width"="128" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
