define dso_local i32 @tatara_kernel(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = alloca [32 x i8], align 64
  %v5 = getelementptr ptr, ptr %buffers, i64 2
  %v6 = load ptr, ptr %v5
  %v7 = getelementptr ptr, ptr %buffers, i64 3
  %v8 = load ptr, ptr %v7
  br label %L9
L9:
  %v12 = phi i64 [ %begin, %entry ], [ %v132, %L114 ]
  %v133 = icmp slt i64 %v12, %end
  br i1 %v133, label %L10, label %L11
L10:
  %v13 = insertelement <4 x i1> poison, i1 true, i64 0
  %v14 = shufflevector <4 x i1> %v13, <4 x i1> poison, <4 x i32> zeroinitializer
  %v15 = insertelement <4 x double> poison, double 0xFFF0000000000000, i64 0
  %v16 = shufflevector <4 x double> %v15, <4 x double> poison, <4 x i32> zeroinitializer
  br label %L17
L17:
  %v20 = phi i64 [ 0, %L10 ], [ %v35, %L18 ]
  %v21 = phi <4 x i1> [ %v14, %L10 ], [ %v30, %L18 ]
  %v22 = phi <4 x double> [ %v16, %L10 ], [ %v34, %L18 ]
  %v36 = icmp slt i64 %v20, 4
  br i1 %v36, label %L18, label %L19
L18:
  %v23 = mul nsw i64 4, %v12
  %v24 = add nsw i64 %v23, %v20
  %v25 = getelementptr inbounds double, ptr %v1, i64 %v24
  %v26 = load <4 x double>, ptr %v25, align 8
  %v27 = insertelement <4 x double> poison, double 0xFFF0000000000000, i64 0
  %v28 = shufflevector <4 x double> %v27, <4 x double> poison, <4 x i32> zeroinitializer
  %v29 = fcmp oeq <4 x double> %v26, %v28
  %v30 = and <4 x i1> %v21, %v29
  %v31 = fcmp ogt <4 x double> %v22, %v26
  %v32 = select <4 x i1> %v31, <4 x double> %v22, <4 x double> %v26
  %v33 = fcmp uno <4 x double> %v22, %v22
  %v34 = select <4 x i1> %v33, <4 x double> %v22, <4 x double> %v32
  %v35 = add nsw i64 %v20, 4
  br label %L17
L19:
  %v37 = shufflevector <4 x i1> %v21, <4 x i1> poison, <2 x i32> <i32 0, i32 1>
  %v38 = shufflevector <4 x i1> %v21, <4 x i1> poison, <2 x i32> <i32 2, i32 3>
  %v39 = shufflevector <4 x double> %v22, <4 x double> poison, <2 x i32> <i32 0, i32 1>
  %v40 = shufflevector <4 x double> %v22, <4 x double> poison, <2 x i32> <i32 2, i32 3>
  %v41 = and <2 x i1> %v37, %v38
  %v42 = fcmp ogt <2 x double> %v39, %v40
  %v43 = select <2 x i1> %v42, <2 x double> %v39, <2 x double> %v40
  %v44 = fcmp uno <2 x double> %v39, %v39
  %v45 = select <2 x i1> %v44, <2 x double> %v39, <2 x double> %v43
  %v46 = extractelement <2 x i1> %v41, i64 0
  %v47 = extractelement <2 x i1> %v41, i64 1
  %v48 = extractelement <2 x double> %v45, i64 0
  %v49 = extractelement <2 x double> %v45, i64 1
  %v50 = and i1 %v46, %v47
  %v51 = fcmp ogt double %v48, %v49
  %v52 = select i1 %v51, double %v48, double %v49
  %v53 = fcmp uno double %v48, %v48
  %v54 = select i1 %v53, double %v48, double %v52
  %v55 = and i1 true, %v50
  %v56 = fcmp ogt double 0xFFF0000000000000, %v54
  %v57 = select i1 %v56, double 0xFFF0000000000000, double %v54
  %v58 = fcmp uno double 0xFFF0000000000000, 0xFFF0000000000000
  %v59 = select i1 %v58, double 0xFFF0000000000000, double %v57
  %v60 = getelementptr inbounds i8, ptr %v3, i64 %v12
  %v61 = zext i1 %v55 to i8
  store i8 %v61, ptr %v60, align 1
  %v62 = insertelement <4 x double> poison, double 0x8000000000000000, i64 0
  %v63 = shufflevector <4 x double> %v62, <4 x double> poison, <4 x i32> zeroinitializer
  br label %L64
L64:
  %v67 = phi i64 [ 0, %L19 ], [ %v102, %L65 ]
  %v68 = phi <4 x double> [ %v63, %L19 ], [ %v101, %L65 ]
  %v103 = icmp slt i64 %v67, 4
  br i1 %v103, label %L65, label %L66
L65:
  %v69 = mul nsw i64 4, %v12
  %v70 = add nsw i64 %v69, %v67
  %v71 = getelementptr inbounds double, ptr %v1, i64 %v70
  %v72 = load <4 x double>, ptr %v71, align 8
  %v73 = insertelement <4 x double> poison, double %v59, i64 0
  %v74 = shufflevector <4 x double> %v73, <4 x double> poison, <4 x i32> zeroinitializer
  %v75 = fsub <4 x double> %v72, %v74
  %v76 = fcmp olt <4 x double> %v75, splat (double 0xC087491EB851EB85)
  %v77 = select <4 x i1> %v76, <4 x double> splat (double 0x0000000000000000), <4 x double> %v75
  %v78 = fcmp olt <4 x double> splat (double 0x4086300000000000), %v77
  %v79 = select <4 x i1> %v78, <4 x double> splat (double 0x4086300000000000), <4 x double> %v77
  %v80 = fmul <4 x double> %v79, splat (double 0x3FF71547652B82FE)
  %v81 = call <4 x double> @llvm.roundeven.v4f64(<4 x double> %v80)
  %v82 = call <4 x double> @llvm.fma.v4f64(<4 x double> %v81, <4 x double> splat (double 0xBFE62E42FF000000), <4 x double> %v79)
  %v83 = call <4 x double> @llvm.fma.v4f64(<4 x double> %v81, <4 x double> splat (double 0x3DC718432A1B0E26), <4 x double> %v82)
  %v84 = call <4 x double> @llvm.fma.v4f64(<4 x double> splat (double 0x3E5AD7E2D3E7E3F1), <4 x double> %v83, <4 x double> splat (double 0x3E928AD97D725DA4))
  %v85 = call <4 x double> @llvm.fma.v4f64(<4 x double> %v84, <4 x double> %v83, <4 x double> splat (double 0x3EC71DF265B7AF5B))
  %v86 = call <4 x double> @llvm.fma.v4f64(<4 x double> %v85, <4 x double> %v83, <4 x double> splat (double 0x3EFA01999E6A45EC))
  %v87 = call <4 x double> @llvm.fma.v4f64(<4 x double> %v86, <4 x double> %v83, <4 x double> splat (double 0x3F2A01A0129C7644))
  %v88 = call <4 x double> @llvm.fma.v4f64(<4 x double> %v87, <4 x double> %v83, <4 x double> splat (double 0x3F56C16C18436FAA))
  %v89 = call <4 x double> @llvm.fma.v4f64(<4 x double> %v88, <4 x double> %v83, <4 x double> splat (double 0x3F81111111127DD0))
  %v90 = call <4 x double> @llvm.fma.v4f64(<4 x double> %v89, <4 x double> %v83, <4 x double> splat (double 0x3FA5555555550847))
  %v91 = call <4 x double> @llvm.fma.v4f64(<4 x double> %v90, <4 x double> %v83, <4 x double> splat (double 0x3FC55555555554F9))
  %v92 = call <4 x double> @llvm.fma.v4f64(<4 x double> %v91, <4 x double> %v83, <4 x double> splat (double 0x3FE000000000000A))
  %v93 = fmul <4 x double> %v83, %v83
  %v94 = call <4 x double> @llvm.fma.v4f64(<4 x double> %v93, <4 x double> %v92, <4 x double> %v83)
  %v95 = fadd <4 x double> %v94, splat (double 0x3FF0000000000000)
  %v96 = fptosi <4 x double> %v81 to <4 x i32>
  %v97 = freeze <4 x i32> %v96
  %v98 = call <4 x double> @llvm.ldexp.v4f64.v4i32(<4 x double> %v95, <4 x i32> %v97)
  %v99 = select <4 x i1> %v76, <4 x double> splat (double 0x0000000000000000), <4 x double> %v98
  %v100 = getelementptr inbounds double, ptr %v4, i64 %v67
  store <4 x double> %v99, ptr %v100, align 8
  %v101 = fadd <4 x double> %v68, %v99
  %v102 = add nsw i64 %v67, 4
  br label %L64
L66:
  %v104 = shufflevector <4 x double> %v68, <4 x double> poison, <2 x i32> <i32 0, i32 1>
  %v105 = shufflevector <4 x double> %v68, <4 x double> poison, <2 x i32> <i32 2, i32 3>
  %v106 = fadd <2 x double> %v104, %v105
  %v107 = extractelement <2 x double> %v106, i64 0
  %v108 = extractelement <2 x double> %v106, i64 1
  %v109 = fadd double %v107, %v108
  %v110 = fadd double 0x0000000000000000, %v109
  %v111 = fdiv double 0x3FF0000000000000, %v110
  br label %L112
L112:
  %v115 = phi i64 [ 0, %L66 ], [ %v130, %L113 ]
  %v131 = icmp slt i64 %v115, 4
  br i1 %v131, label %L113, label %L114
L113:
  %v116 = getelementptr inbounds double, ptr %v4, i64 %v115
  %v117 = load <4 x double>, ptr %v116, align 8
  %v118 = insertelement <4 x double> poison, double %v111, i64 0
  %v119 = shufflevector <4 x double> %v118, <4 x double> poison, <4 x i32> zeroinitializer
  %v120 = fmul <4 x double> %v117, %v119
  %v121 = insertelement <4 x double> poison, double 0x0000000000000000, i64 0
  %v122 = shufflevector <4 x double> %v121, <4 x double> poison, <4 x i32> zeroinitializer
  %v123 = select i1 %v55, <4 x double> %v122, <4 x double> %v120
  %v124 = mul nsw i64 4, %v12
  %v125 = add nsw i64 %v124, %v115
  %v126 = getelementptr inbounds double, ptr %v6, i64 %v125
  store <4 x double> %v120, ptr %v126, align 8
  %v127 = mul nsw i64 4, %v12
  %v128 = add nsw i64 %v127, %v115
  %v129 = getelementptr inbounds double, ptr %v8, i64 %v128
  store <4 x double> %v123, ptr %v129, align 8
  %v130 = add nsw i64 %v115, 4
  br label %L112
L114:
  %v132 = add nsw i64 %v12, 1
  br label %L9
L11:
  ret i32 0
}
declare <4 x double> @llvm.fma.v4f64(<4 x double>, <4 x double>, <4 x double>)
declare <4 x double> @llvm.ldexp.v4f64.v4i32(<4 x double>, <4 x i32>)
declare <4 x double> @llvm.roundeven.v4f64(<4 x double>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
