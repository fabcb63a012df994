define dso_local i32 @scatter_add(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  br label %L6
L6:
  %v9 = phi i64 [ 0, %entry ], [ %v93, %L87 ]
  %v94 = icmp slt i64 %v9, 96
  br i1 %v94, label %L7, label %L8
L7:
  %v10 = getelementptr inbounds i64, ptr %v1, i64 %v9
  %v11 = load <8 x i64>, ptr %v10, align 8
  %v12 = insertelement <8 x i64> poison, i64 10, i64 0
  %v13 = shufflevector <8 x i64> %v12, <8 x i64> poison, <8 x i32> zeroinitializer
  %v14 = icmp uge <8 x i64> %v11, %v13
  %v15 = bitcast <8 x i1> %v14 to i8
  %v16 = icmp ne i8 %v15, 0
  br i1 %v16, label %L17, label %L18, !prof !0
L17:
  %v19 = call i8 @llvm.cttz.i8(i8 %v15, i1 true)
  %v20 = zext i8 %v19 to i64
  %v21 = extractelement <8 x i64> %v11, i64 %v20
  store i64 %v21, ptr %fault
  %v22 = getelementptr i8, ptr %fault, i64 8
  store i64 10, ptr %v22
  %v23 = getelementptr i8, ptr %fault, i64 16
  store i32 0, ptr %v23
  ret i32 1
L18:
  %v24 = getelementptr inbounds float, ptr %v3, i64 %v9
  %v25 = load <8 x float>, ptr %v24, align 4
  %v26 = insertelement <8 x float> poison, float 0x0000000000000000, i64 0
  %v27 = shufflevector <8 x float> %v26, <8 x float> poison, <8 x i32> zeroinitializer
  %v28 = fcmp ogt <8 x float> %v25, %v27
  %v29 = extractelement <8 x i1> %v28, i64 0
  br i1 %v29, label %L30, label %L31
L30:
  %v32 = extractelement <8 x i64> %v11, i64 0
  %v33 = extractelement <8 x float> %v25, i64 0
  %v34 = getelementptr inbounds float, ptr %v5, i64 %v32
  %v35 = load float, ptr %v34, align 4
  %v36 = fadd float %v35, %v33
  store float %v36, ptr %v34, align 4
  br label %L31
L31:
  %v37 = extractelement <8 x i1> %v28, i64 1
  br i1 %v37, label %L38, label %L39
L38:
  %v40 = extractelement <8 x i64> %v11, i64 1
  %v41 = extractelement <8 x float> %v25, i64 1
  %v42 = getelementptr inbounds float, ptr %v5, i64 %v40
  %v43 = load float, ptr %v42, align 4
  %v44 = fadd float %v43, %v41
  store float %v44, ptr %v42, align 4
  br label %L39
L39:
  %v45 = extractelement <8 x i1> %v28, i64 2
  br i1 %v45, label %L46, label %L47
L46:
  %v48 = extractelement <8 x i64> %v11, i64 2
  %v49 = extractelement <8 x float> %v25, i64 2
  %v50 = getelementptr inbounds float, ptr %v5, i64 %v48
  %v51 = load float, ptr %v50, align 4
  %v52 = fadd float %v51, %v49
  store float %v52, ptr %v50, align 4
  br label %L47
L47:
  %v53 = extractelement <8 x i1> %v28, i64 3
  br i1 %v53, label %L54, label %L55
L54:
  %v56 = extractelement <8 x i64> %v11, i64 3
  %v57 = extractelement <8 x float> %v25, i64 3
  %v58 = getelementptr inbounds float, ptr %v5, i64 %v56
  %v59 = load float, ptr %v58, align 4
  %v60 = fadd float %v59, %v57
  store float %v60, ptr %v58, align 4
  br label %L55
L55:
  %v61 = extractelement <8 x i1> %v28, i64 4
  br i1 %v61, label %L62, label %L63
L62:
  %v64 = extractelement <8 x i64> %v11, i64 4
  %v65 = extractelement <8 x float> %v25, i64 4
  %v66 = getelementptr inbounds float, ptr %v5, i64 %v64
  %v67 = load float, ptr %v66, align 4
  %v68 = fadd float %v67, %v65
  store float %v68, ptr %v66, align 4
  br label %L63
L63:
  %v69 = extractelement <8 x i1> %v28, i64 5
  br i1 %v69, label %L70, label %L71
L70:
  %v72 = extractelement <8 x i64> %v11, i64 5
  %v73 = extractelement <8 x float> %v25, i64 5
  %v74 = getelementptr inbounds float, ptr %v5, i64 %v72
  %v75 = load float, ptr %v74, align 4
  %v76 = fadd float %v75, %v73
  store float %v76, ptr %v74, align 4
  br label %L71
L71:
  %v77 = extractelement <8 x i1> %v28, i64 6
  br i1 %v77, label %L78, label %L79
L78:
  %v80 = extractelement <8 x i64> %v11, i64 6
  %v81 = extractelement <8 x float> %v25, i64 6
  %v82 = getelementptr inbounds float, ptr %v5, i64 %v80
  %v83 = load float, ptr %v82, align 4
  %v84 = fadd float %v83, %v81
  store float %v84, ptr %v82, align 4
  br label %L79
L79:
  %v85 = extractelement <8 x i1> %v28, i64 7
  br i1 %v85, label %L86, label %L87
L86:
  %v88 = extractelement <8 x i64> %v11, i64 7
  %v89 = extractelement <8 x float> %v25, i64 7
  %v90 = getelementptr inbounds float, ptr %v5, i64 %v88
  %v91 = load float, ptr %v90, align 4
  %v92 = fadd float %v91, %v89
  store float %v92, ptr %v90, align 4
  br label %L87
L87:
  %v93 = add nsw i64 %v9, 8
  br label %L6
L8:
  %v97 = sub i64 100, 96
  %v98 = icmp sgt i64 %v97, 0
  br i1 %v98, label %L95, label %L96
L95:
  %v99 = trunc i64 %v97 to i32
  %v100 = insertelement <8 x i32> poison, i32 %v99, i64 0
  %v101 = shufflevector <8 x i32> %v100, <8 x i32> poison, <8 x i32> zeroinitializer
  %v102 = icmp sgt <8 x i32> %v101, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v103 = getelementptr inbounds i64, ptr %v1, i64 96
  %v104 = call <8 x i64> @llvm.masked.load.v8i64.p0(ptr align 8 %v103, <8 x i1> %v102, <8 x i64> zeroinitializer)
  %v105 = insertelement <8 x i64> poison, i64 10, i64 0
  %v106 = shufflevector <8 x i64> %v105, <8 x i64> poison, <8 x i32> zeroinitializer
  %v107 = icmp uge <8 x i64> %v104, %v106
  %v108 = and <8 x i1> %v107, %v102
  %v109 = bitcast <8 x i1> %v108 to i8
  %v110 = icmp ne i8 %v109, 0
  br i1 %v110, label %L111, label %L112, !prof !0
L111:
  %v113 = call i8 @llvm.cttz.i8(i8 %v109, i1 true)
  %v114 = zext i8 %v113 to i64
  %v115 = extractelement <8 x i64> %v104, i64 %v114
  store i64 %v115, ptr %fault
  %v116 = getelementptr i8, ptr %fault, i64 8
  store i64 10, ptr %v116
  %v117 = getelementptr i8, ptr %fault, i64 16
  store i32 0, ptr %v117
  ret i32 1
L112:
  %v118 = getelementptr inbounds float, ptr %v3, i64 96
  %v119 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v118, <8 x i1> %v102, <8 x float> zeroinitializer)
  %v120 = insertelement <8 x float> poison, float 0x0000000000000000, i64 0
  %v121 = shufflevector <8 x float> %v120, <8 x float> poison, <8 x i32> zeroinitializer
  %v122 = fcmp ogt <8 x float> %v119, %v121
  %v123 = and <8 x i1> %v122, %v102
  %v124 = extractelement <8 x i1> %v123, i64 0
  br i1 %v124, label %L125, label %L126
L125:
  %v127 = extractelement <8 x i64> %v104, i64 0
  %v128 = extractelement <8 x float> %v119, i64 0
  %v129 = getelementptr inbounds float, ptr %v5, i64 %v127
  %v130 = load float, ptr %v129, align 4
  %v131 = fadd float %v130, %v128
  store float %v131, ptr %v129, align 4
  br label %L126
L126:
  %v132 = extractelement <8 x i1> %v123, i64 1
  br i1 %v132, label %L133, label %L134
L133:
  %v135 = extractelement <8 x i64> %v104, i64 1
  %v136 = extractelement <8 x float> %v119, i64 1
  %v137 = getelementptr inbounds float, ptr %v5, i64 %v135
  %v138 = load float, ptr %v137, align 4
  %v139 = fadd float %v138, %v136
  store float %v139, ptr %v137, align 4
  br label %L134
L134:
  %v140 = extractelement <8 x i1> %v123, i64 2
  br i1 %v140, label %L141, label %L142
L141:
  %v143 = extractelement <8 x i64> %v104, i64 2
  %v144 = extractelement <8 x float> %v119, i64 2
  %v145 = getelementptr inbounds float, ptr %v5, i64 %v143
  %v146 = load float, ptr %v145, align 4
  %v147 = fadd float %v146, %v144
  store float %v147, ptr %v145, align 4
  br label %L142
L142:
  %v148 = extractelement <8 x i1> %v123, i64 3
  br i1 %v148, label %L149, label %L150
L149:
  %v151 = extractelement <8 x i64> %v104, i64 3
  %v152 = extractelement <8 x float> %v119, i64 3
  %v153 = getelementptr inbounds float, ptr %v5, i64 %v151
  %v154 = load float, ptr %v153, align 4
  %v155 = fadd float %v154, %v152
  store float %v155, ptr %v153, align 4
  br label %L150
L150:
  %v156 = extractelement <8 x i1> %v123, i64 4
  br i1 %v156, label %L157, label %L158
L157:
  %v159 = extractelement <8 x i64> %v104, i64 4
  %v160 = extractelement <8 x float> %v119, i64 4
  %v161 = getelementptr inbounds float, ptr %v5, i64 %v159
  %v162 = load float, ptr %v161, align 4
  %v163 = fadd float %v162, %v160
  store float %v163, ptr %v161, align 4
  br label %L158
L158:
  %v164 = extractelement <8 x i1> %v123, i64 5
  br i1 %v164, label %L165, label %L166
L165:
  %v167 = extractelement <8 x i64> %v104, i64 5
  %v168 = extractelement <8 x float> %v119, i64 5
  %v169 = getelementptr inbounds float, ptr %v5, i64 %v167
  %v170 = load float, ptr %v169, align 4
  %v171 = fadd float %v170, %v168
  store float %v171, ptr %v169, align 4
  br label %L166
L166:
  %v172 = extractelement <8 x i1> %v123, i64 6
  br i1 %v172, label %L173, label %L174
L173:
  %v175 = extractelement <8 x i64> %v104, i64 6
  %v176 = extractelement <8 x float> %v119, i64 6
  %v177 = getelementptr inbounds float, ptr %v5, i64 %v175
  %v178 = load float, ptr %v177, align 4
  %v179 = fadd float %v178, %v176
  store float %v179, ptr %v177, align 4
  br label %L174
L174:
  %v180 = extractelement <8 x i1> %v123, i64 7
  br i1 %v180, label %L181, label %L182
L181:
  %v183 = extractelement <8 x i64> %v104, i64 7
  %v184 = extractelement <8 x float> %v119, i64 7
  %v185 = getelementptr inbounds float, ptr %v5, i64 %v183
  %v186 = load float, ptr %v185, align 4
  %v187 = fadd float %v186, %v184
  store float %v187, ptr %v185, align 4
  br label %L182
L182:
  br label %L96
L96:
  ret i32 0
}
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
declare <8 x i64> @llvm.masked.load.v8i64.p0(ptr, <8 x i1>, <8 x i64>)
declare i8 @llvm.cttz.i8(i8, i1)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
