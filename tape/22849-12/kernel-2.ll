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
  br label %L12
L12:
  %v15 = phi i64 [ %begin, %entry ], [ %v132, %L95 ]
  %v133 = icmp slt i64 %v15, %end
  br i1 %v133, label %L13, label %L14
L13:
  %v16 = urem i64 %v15, 2
  %v17 = udiv i64 %v15, 2
  %v18 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v19 = shufflevector <4 x float> %v18, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L20
L20:
  %v23 = phi i64 [ 0, %L13 ], [ %v42, %L21 ]
  %v24 = phi <4 x float> [ %v19, %L13 ], [ %v41, %L21 ]
  %v43 = icmp slt i64 %v23, 4
  br i1 %v43, label %L21, label %L22
L21:
  %v25 = mul nsw i64 4, %v17
  %v26 = mul nsw i64 12, %v16
  %v27 = add nsw i64 %v25, %v26
  %v28 = add nsw i64 %v27, %v23
  %v29 = getelementptr inbounds float, ptr %v1, i64 %v28
  %v30 = load <4 x float>, ptr %v29, align 4
  %v31 = mul nsw i64 8, %v17
  %v32 = mul nsw i64 4, %v16
  %v33 = add nsw i64 %v31, %v32
  %v34 = add nsw i64 %v33, %v23
  %v35 = getelementptr inbounds float, ptr %v3, i64 %v34
  %v36 = load <4 x float>, ptr %v35, align 4
  %v37 = getelementptr inbounds float, ptr %v5, i64 %v23
  %v38 = load <4 x float>, ptr %v37, align 4
  %v39 = fadd <4 x float> %v36, %v38
  %v40 = fadd <4 x float> %v30, %v39
  %v41 = fadd <4 x float> %v24, %v40
  %v42 = add nsw i64 %v23, 4
  br label %L20
L22:
  %v44 = shufflevector <4 x float> %v24, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v45 = shufflevector <4 x float> %v24, <4 x float> poison, <2 x i32> <i32 2, i32 3>
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
  %v57 = phi i64 [ 0, %L22 ], [ %v80, %L55 ]
  %v58 = phi <4 x float> [ %v53, %L22 ], [ %v79, %L55 ]
  %v81 = icmp slt i64 %v57, 4
  br i1 %v81, label %L55, label %L56
L55:
  %v59 = mul nsw i64 4, %v17
  %v60 = mul nsw i64 12, %v16
  %v61 = add nsw i64 %v59, %v60
  %v62 = add nsw i64 %v61, %v57
  %v63 = getelementptr inbounds float, ptr %v1, i64 %v62
  %v64 = load <4 x float>, ptr %v63, align 4
  %v65 = mul nsw i64 8, %v17
  %v66 = mul nsw i64 4, %v16
  %v67 = add nsw i64 %v65, %v66
  %v68 = add nsw i64 %v67, %v57
  %v69 = getelementptr inbounds float, ptr %v3, i64 %v68
  %v70 = load <4 x float>, ptr %v69, align 4
  %v71 = getelementptr inbounds float, ptr %v5, i64 %v57
  %v72 = load <4 x float>, ptr %v71, align 4
  %v73 = fadd <4 x float> %v70, %v72
  %v74 = fadd <4 x float> %v64, %v73
  %v75 = insertelement <4 x float> poison, float %v51, i64 0
  %v76 = shufflevector <4 x float> %v75, <4 x float> poison, <4 x i32> zeroinitializer
  %v77 = fsub <4 x float> %v74, %v76
  %v78 = fmul <4 x float> %v77, %v77
  %v79 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v77, <4 x float> %v77, <4 x float> %v58)
  %v80 = add nsw i64 %v57, 4
  br label %L54
L56:
  %v82 = shufflevector <4 x float> %v58, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v83 = shufflevector <4 x float> %v58, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v84 = fadd <2 x float> %v82, %v83
  %v85 = extractelement <2 x float> %v84, i64 0
  %v86 = extractelement <2 x float> %v84, i64 1
  %v87 = fadd float %v85, %v86
  %v88 = fadd float 0x0000000000000000, %v87
  %v89 = fdiv float %v88, 0x4010000000000000
  %v90 = fadd float %v89, 0x3EE4F8B580000000
  %v91 = call float @llvm.sqrt.f32(float %v90)
  %v92 = fdiv float 0x3FF0000000000000, %v91
  br label %L93
L93:
  %v96 = phi i64 [ 0, %L56 ], [ %v130, %L94 ]
  %v131 = icmp slt i64 %v96, 4
  br i1 %v131, label %L94, label %L95
L94:
  %v97 = mul nsw i64 4, %v17
  %v98 = mul nsw i64 12, %v16
  %v99 = add nsw i64 %v97, %v98
  %v100 = add nsw i64 %v99, %v96
  %v101 = getelementptr inbounds float, ptr %v1, i64 %v100
  %v102 = load <4 x float>, ptr %v101, align 4
  %v103 = mul nsw i64 8, %v17
  %v104 = mul nsw i64 4, %v16
  %v105 = add nsw i64 %v103, %v104
  %v106 = add nsw i64 %v105, %v96
  %v107 = getelementptr inbounds float, ptr %v3, i64 %v106
  %v108 = load <4 x float>, ptr %v107, align 4
  %v109 = getelementptr inbounds float, ptr %v5, i64 %v96
  %v110 = load <4 x float>, ptr %v109, align 4
  %v111 = fadd <4 x float> %v108, %v110
  %v112 = fadd <4 x float> %v102, %v111
  %v113 = insertelement <4 x float> poison, float %v51, i64 0
  %v114 = shufflevector <4 x float> %v113, <4 x float> poison, <4 x i32> zeroinitializer
  %v115 = fsub <4 x float> %v112, %v114
  %v116 = insertelement <4 x float> poison, float %v92, i64 0
  %v117 = shufflevector <4 x float> %v116, <4 x float> poison, <4 x i32> zeroinitializer
  %v118 = fmul <4 x float> %v115, %v117
  %v119 = getelementptr inbounds float, ptr %v7, i64 %v96
  %v120 = load <4 x float>, ptr %v119, align 4
  %v121 = fmul <4 x float> %v118, %v120
  %v122 = getelementptr inbounds float, ptr %v9, i64 %v96
  %v123 = load <4 x float>, ptr %v122, align 4
  %v124 = fadd <4 x float> %v121, %v123
  %v125 = mul nsw i64 8, %v17
  %v126 = mul nsw i64 4, %v16
  %v127 = add nsw i64 %v125, %v126
  %v128 = add nsw i64 %v127, %v96
  %v129 = getelementptr inbounds float, ptr %v11, i64 %v128
  store <4 x float> %v124, ptr %v129, align 4
  %v130 = add nsw i64 %v96, 4
  br label %L93
L95:
  %v132 = add nsw i64 %v15, 1
  br label %L12
L14:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @llvm.sqrt.f32(float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
