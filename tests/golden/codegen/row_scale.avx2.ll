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
  %v11 = phi i64 [ %begin, %entry ], [ %v228, %L204 ]
  %v229 = icmp slt i64 %v11, %end
  br i1 %v229, label %L9, label %L10
L9:
  %v12 = insertelement <32 x float> poison, float 0xFFF0000000000000, i64 0
  %v13 = shufflevector <32 x float> %v12, <32 x float> poison, <32 x i32> zeroinitializer
  %v14 = and i64 %v7, -32
  br label %L15
L15:
  %v18 = phi i64 [ 0, %L9 ], [ %v28, %L16 ]
  %v19 = phi <32 x float> [ %v13, %L9 ], [ %v27, %L16 ]
  %v29 = icmp slt i64 %v18, %v14
  br i1 %v29, label %L16, label %L17
L16:
  %v20 = mul nsw i64 %v11, %v7
  %v21 = add nsw i64 %v18, %v20
  %v22 = getelementptr inbounds float, ptr %v1, i64 %v21
  %v23 = load <32 x float>, ptr %v22, align 4
  %v24 = fcmp ogt <32 x float> %v19, %v23
  %v25 = select <32 x i1> %v24, <32 x float> %v19, <32 x float> %v23
  %v26 = fcmp uno <32 x float> %v19, %v19
  %v27 = select <32 x i1> %v26, <32 x float> %v19, <32 x float> %v25
  %v28 = add nsw i64 %v18, 32
  br label %L15
L17:
  %v32 = sub i64 %v7, %v14
  %v33 = icmp sgt i64 %v32, 0
  br i1 %v33, label %L30, label %L31
L30:
  %v34 = trunc i64 %v32 to i32
  %v35 = insertelement <32 x i32> poison, i32 %v34, i64 0
  %v36 = shufflevector <32 x i32> %v35, <32 x i32> poison, <32 x i32> zeroinitializer
  %v37 = icmp sgt <32 x i32> %v36, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v38 = mul nsw i64 %v11, %v7
  %v39 = add nsw i64 %v14, %v38
  %v40 = getelementptr inbounds float, ptr %v1, i64 %v39
  %v41 = call <32 x float> @llvm.masked.load.v32f32.p0(ptr align 4 %v40, <32 x i1> %v37, <32 x float> zeroinitializer)
  %v42 = fcmp ogt <32 x float> %v19, %v41
  %v43 = select <32 x i1> %v42, <32 x float> %v19, <32 x float> %v41
  %v44 = fcmp uno <32 x float> %v19, %v19
  %v45 = select <32 x i1> %v44, <32 x float> %v19, <32 x float> %v43
  %v46 = select <32 x i1> %v37, <32 x float> %v45, <32 x float> %v19
  br label %L31
L31:
  %v47 = phi <32 x float> [ %v46, %L30 ], [ %v19, %L17 ]
  %v48 = shufflevector <32 x float> %v47, <32 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v49 = shufflevector <32 x float> %v47, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v50 = fcmp ogt <16 x float> %v48, %v49
  %v51 = select <16 x i1> %v50, <16 x float> %v48, <16 x float> %v49
  %v52 = fcmp uno <16 x float> %v48, %v48
  %v53 = select <16 x i1> %v52, <16 x float> %v48, <16 x float> %v51
  %v54 = shufflevector <16 x float> %v53, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v55 = shufflevector <16 x float> %v53, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v56 = fcmp ogt <8 x float> %v54, %v55
  %v57 = select <8 x i1> %v56, <8 x float> %v54, <8 x float> %v55
  %v58 = fcmp uno <8 x float> %v54, %v54
  %v59 = select <8 x i1> %v58, <8 x float> %v54, <8 x float> %v57
  %v60 = shufflevector <8 x float> %v59, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v61 = shufflevector <8 x float> %v59, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v62 = fcmp ogt <4 x float> %v60, %v61
  %v63 = select <4 x i1> %v62, <4 x float> %v60, <4 x float> %v61
  %v64 = fcmp uno <4 x float> %v60, %v60
  %v65 = select <4 x i1> %v64, <4 x float> %v60, <4 x float> %v63
  %v66 = shufflevector <4 x float> %v65, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v67 = shufflevector <4 x float> %v65, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v68 = fcmp ogt <2 x float> %v66, %v67
  %v69 = select <2 x i1> %v68, <2 x float> %v66, <2 x float> %v67
  %v70 = fcmp uno <2 x float> %v66, %v66
  %v71 = select <2 x i1> %v70, <2 x float> %v66, <2 x float> %v69
  %v72 = extractelement <2 x float> %v71, i64 0
  %v73 = extractelement <2 x float> %v71, i64 1
  %v74 = fcmp ogt float %v72, %v73
  %v75 = select i1 %v74, float %v72, float %v73
  %v76 = fcmp uno float %v72, %v72
  %v77 = select i1 %v76, float %v72, float %v75
  %v78 = fcmp ogt float 0xFFF0000000000000, %v77
  %v79 = select i1 %v78, float 0xFFF0000000000000, float %v77
  %v80 = fcmp uno float 0xFFF0000000000000, 0xFFF0000000000000
  %v81 = select i1 %v80, float 0xFFF0000000000000, float %v79
  %v82 = insertelement <32 x float> poison, float 0x8000000000000000, i64 0
  %v83 = shufflevector <32 x float> %v82, <32 x float> poison, <32 x i32> zeroinitializer
  %v84 = and i64 %v7, -32
  br label %L85
L85:
  %v88 = phi i64 [ 0, %L31 ], [ %v138, %L97 ]
  %v89 = phi <32 x float> [ %v83, %L31 ], [ %v137, %L97 ]
  %v139 = icmp slt i64 %v88, %v84
  br i1 %v139, label %L86, label %L87
L86:
  %v90 = add nsw i64 %v88, 1048576
  %v91 = icmp slt i64 %v90, %v84
  %v92 = select i1 %v91, i64 %v90, i64 %v84
  %v93 = insertelement <32 x float> poison, float 0x8000000000000000, i64 0
  %v94 = shufflevector <32 x float> %v93, <32 x float> poison, <32 x i32> zeroinitializer
  br label %L95
L95:
  %v98 = phi i64 [ %v88, %L86 ], [ %v135, %L107 ]
  %v99 = phi <32 x float> [ %v94, %L86 ], [ %v134, %L107 ]
  %v136 = icmp slt i64 %v98, %v92
  br i1 %v136, label %L96, label %L97
L96:
  %v100 = add nsw i64 %v98, 32768
  %v101 = icmp slt i64 %v100, %v92
  %v102 = select i1 %v101, i64 %v100, i64 %v92
  %v103 = insertelement <32 x float> poison, float 0x8000000000000000, i64 0
  %v104 = shufflevector <32 x float> %v103, <32 x float> poison, <32 x i32> zeroinitializer
  br label %L105
L105:
  %v108 = phi i64 [ %v98, %L96 ], [ %v132, %L117 ]
  %v109 = phi <32 x float> [ %v104, %L96 ], [ %v131, %L117 ]
  %v133 = icmp slt i64 %v108, %v102
  br i1 %v133, label %L106, label %L107
L106:
  %v110 = add nsw i64 %v108, 1024
  %v111 = icmp slt i64 %v110, %v102
  %v112 = select i1 %v111, i64 %v110, i64 %v102
  %v113 = insertelement <32 x float> poison, float 0x8000000000000000, i64 0
  %v114 = shufflevector <32 x float> %v113, <32 x float> poison, <32 x i32> zeroinitializer
  br label %L115
L115:
  %v118 = phi i64 [ %v108, %L106 ], [ %v129, %L116 ]
  %v119 = phi <32 x float> [ %v114, %L106 ], [ %v128, %L116 ]
  %v130 = icmp slt i64 %v118, %v112
  br i1 %v130, label %L116, label %L117
L116:
  %v120 = mul nsw i64 %v11, %v7
  %v121 = add nsw i64 %v118, %v120
  %v122 = getelementptr inbounds float, ptr %v1, i64 %v121
  %v123 = load <32 x float>, ptr %v122, align 4
  %v124 = insertelement <32 x float> poison, float %v81, i64 0
  %v125 = shufflevector <32 x float> %v124, <32 x float> poison, <32 x i32> zeroinitializer
  %v126 = fsub <32 x float> %v123, %v125
  %v127 = fmul <32 x float> %v126, %v126
  %v128 = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> %v126, <32 x float> %v126, <32 x float> %v119)
  %v129 = add nsw i64 %v118, 32
  br label %L115
L117:
  %v131 = fadd <32 x float> %v109, %v119
  %v132 = add nsw i64 %v108, 1024
  br label %L105
L107:
  %v134 = fadd <32 x float> %v99, %v109
  %v135 = add nsw i64 %v98, 32768
  br label %L95
L97:
  %v137 = fadd <32 x float> %v89, %v99
  %v138 = add nsw i64 %v88, 1048576
  br label %L85
L87:
  %v142 = sub i64 %v7, %v84
  %v143 = icmp sgt i64 %v142, 0
  br i1 %v143, label %L140, label %L141
L140:
  %v144 = trunc i64 %v142 to i32
  %v145 = insertelement <32 x i32> poison, i32 %v144, i64 0
  %v146 = shufflevector <32 x i32> %v145, <32 x i32> poison, <32 x i32> zeroinitializer
  %v147 = icmp sgt <32 x i32> %v146, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v148 = mul nsw i64 %v11, %v7
  %v149 = add nsw i64 %v84, %v148
  %v150 = getelementptr inbounds float, ptr %v1, i64 %v149
  %v151 = call <32 x float> @llvm.masked.load.v32f32.p0(ptr align 4 %v150, <32 x i1> %v147, <32 x float> zeroinitializer)
  %v152 = insertelement <32 x float> poison, float %v81, i64 0
  %v153 = shufflevector <32 x float> %v152, <32 x float> poison, <32 x i32> zeroinitializer
  %v154 = fsub <32 x float> %v151, %v153
  %v155 = fmul <32 x float> %v154, %v154
  %v156 = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> %v154, <32 x float> %v154, <32 x float> %v89)
  %v157 = select <32 x i1> %v147, <32 x float> %v156, <32 x float> %v89
  br label %L141
L141:
  %v158 = phi <32 x float> [ %v157, %L140 ], [ %v89, %L87 ]
  %v159 = shufflevector <32 x float> %v158, <32 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v160 = shufflevector <32 x float> %v158, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v161 = fadd <16 x float> %v159, %v160
  %v162 = shufflevector <16 x float> %v161, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v163 = shufflevector <16 x float> %v161, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v164 = fadd <8 x float> %v162, %v163
  %v165 = shufflevector <8 x float> %v164, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v166 = shufflevector <8 x float> %v164, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v167 = fadd <4 x float> %v165, %v166
  %v168 = shufflevector <4 x float> %v167, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v169 = shufflevector <4 x float> %v167, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v170 = fadd <2 x float> %v168, %v169
  %v171 = extractelement <2 x float> %v170, i64 0
  %v172 = extractelement <2 x float> %v170, i64 1
  %v173 = fadd float %v171, %v172
  %v174 = fadd float 0x0000000000000000, %v173
  %v175 = and i64 %v7, -32
  br label %L176
L176:
  %v179 = phi i64 [ 0, %L141 ], [ %v201, %L177 ]
  %v202 = icmp slt i64 %v179, %v175
  br i1 %v202, label %L177, label %L178
L177:
  %v180 = mul nsw i64 %v11, %v7
  %v181 = add nsw i64 %v179, %v180
  %v182 = getelementptr inbounds float, ptr %v1, i64 %v181
  %v183 = load <32 x float>, ptr %v182, align 4
  %v184 = insertelement <32 x float> poison, float %v81, i64 0
  %v185 = shufflevector <32 x float> %v184, <32 x float> poison, <32 x i32> zeroinitializer
  %v186 = fsub <32 x float> %v183, %v185
  %v187 = fmul <32 x float> %v186, %v186
  %v188 = insertelement <32 x float> poison, float %v174, i64 0
  %v189 = shufflevector <32 x float> %v188, <32 x float> poison, <32 x i32> zeroinitializer
  %v190 = fdiv <32 x float> %v187, %v189
  %v191 = mul nsw i64 %v11, %v7
  %v192 = add nsw i64 %v179, %v191
  %v193 = getelementptr inbounds float, ptr %v3, i64 %v192
  %v194 = shufflevector <32 x float> %v190, <32 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  store <8 x float> %v194, ptr %v193, align 4
  %v195 = shufflevector <32 x float> %v190, <32 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v196 = getelementptr inbounds float, ptr %v193, i64 8
  store <8 x float> %v195, ptr %v196, align 4
  %v197 = shufflevector <32 x float> %v190, <32 x float> poison, <8 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23>
  %v198 = getelementptr inbounds float, ptr %v193, i64 16
  store <8 x float> %v197, ptr %v198, align 4
  %v199 = shufflevector <32 x float> %v190, <32 x float> poison, <8 x i32> <i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v200 = getelementptr inbounds float, ptr %v193, i64 24
  store <8 x float> %v199, ptr %v200, align 4
  %v201 = add nsw i64 %v179, 32
  br label %L176
L178:
  %v205 = sub i64 %v7, %v175
  %v206 = icmp sgt i64 %v205, 0
  br i1 %v206, label %L203, label %L204
L203:
  %v207 = trunc i64 %v205 to i32
  %v208 = insertelement <32 x i32> poison, i32 %v207, i64 0
  %v209 = shufflevector <32 x i32> %v208, <32 x i32> poison, <32 x i32> zeroinitializer
  %v210 = icmp sgt <32 x i32> %v209, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v211 = mul nsw i64 %v11, %v7
  %v212 = add nsw i64 %v175, %v211
  %v213 = getelementptr inbounds float, ptr %v1, i64 %v212
  %v214 = call <32 x float> @llvm.masked.load.v32f32.p0(ptr align 4 %v213, <32 x i1> %v210, <32 x float> zeroinitializer)
  %v215 = insertelement <32 x float> poison, float %v81, i64 0
  %v216 = shufflevector <32 x float> %v215, <32 x float> poison, <32 x i32> zeroinitializer
  %v217 = fsub <32 x float> %v214, %v216
  %v218 = fmul <32 x float> %v217, %v217
  %v219 = insertelement <32 x float> poison, float %v174, i64 0
  %v220 = shufflevector <32 x float> %v219, <32 x float> poison, <32 x i32> zeroinitializer
  %v221 = insertelement <32 x float> poison, float 0x3FF0000000000000, i64 0
  %v222 = shufflevector <32 x float> %v221, <32 x float> poison, <32 x i32> zeroinitializer
  %v223 = select <32 x i1> %v210, <32 x float> %v220, <32 x float> %v222
  %v224 = fdiv <32 x float> %v218, %v223
  %v225 = mul nsw i64 %v11, %v7
  %v226 = add nsw i64 %v175, %v225
  %v227 = getelementptr inbounds float, ptr %v3, i64 %v226
  call void @llvm.masked.store.v32f32.p0(<32 x float> %v224, ptr align 4 %v227, <32 x i1> %v210)
  br label %L204
L204:
  %v228 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
declare <32 x float> @llvm.fmuladd.v32f32(<32 x float>, <32 x float>, <32 x float>)
declare <32 x float> @llvm.masked.load.v32f32.p0(ptr, <32 x i1>, <32 x float>)
declare void @llvm.masked.store.v32f32.p0(<32 x float>, ptr, <32 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="256" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
