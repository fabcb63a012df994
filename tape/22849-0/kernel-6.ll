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
  %v15 = phi i64 [ %begin, %entry ], [ %v116, %L85 ]
  %v117 = icmp slt i64 %v15, %end
  br i1 %v117, label %L13, label %L14
L13:
  %v16 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v17 = shufflevector <4 x float> %v16, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L18
L18:
  %v21 = phi i64 [ 0, %L13 ], [ %v36, %L19 ]
  %v22 = phi <4 x float> [ %v17, %L13 ], [ %v35, %L19 ]
  %v37 = icmp slt i64 %v21, 4
  br i1 %v37, label %L19, label %L20
L19:
  %v23 = mul nsw i64 4, %v15
  %v24 = add nsw i64 %v23, %v21
  %v25 = getelementptr inbounds float, ptr %v1, i64 %v24
  %v26 = load <4 x float>, ptr %v25, align 4
  %v27 = mul nsw i64 4, %v15
  %v28 = add nsw i64 %v27, %v21
  %v29 = getelementptr inbounds float, ptr %v3, i64 %v28
  %v30 = load <4 x float>, ptr %v29, align 4
  %v31 = getelementptr inbounds float, ptr %v5, i64 %v21
  %v32 = load <4 x float>, ptr %v31, align 4
  %v33 = fadd <4 x float> %v30, %v32
  %v34 = fadd <4 x float> %v26, %v33
  %v35 = fadd <4 x float> %v22, %v34
  %v36 = add nsw i64 %v21, 4
  br label %L18
L20:
  %v38 = shufflevector <4 x float> %v22, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v39 = shufflevector <4 x float> %v22, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v40 = fadd <2 x float> %v38, %v39
  %v41 = extractelement <2 x float> %v40, i64 0
  %v42 = extractelement <2 x float> %v40, i64 1
  %v43 = fadd float %v41, %v42
  %v44 = fadd float 0x0000000000000000, %v43
  %v45 = fdiv float %v44, 0x4010000000000000
  %v46 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v47 = shufflevector <4 x float> %v46, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L48
L48:
  %v51 = phi i64 [ 0, %L20 ], [ %v70, %L49 ]
  %v52 = phi <4 x float> [ %v47, %L20 ], [ %v69, %L49 ]
  %v71 = icmp slt i64 %v51, 4
  br i1 %v71, label %L49, label %L50
L49:
  %v53 = mul nsw i64 4, %v15
  %v54 = add nsw i64 %v53, %v51
  %v55 = getelementptr inbounds float, ptr %v1, i64 %v54
  %v56 = load <4 x float>, ptr %v55, align 4
  %v57 = mul nsw i64 4, %v15
  %v58 = add nsw i64 %v57, %v51
  %v59 = getelementptr inbounds float, ptr %v3, i64 %v58
  %v60 = load <4 x float>, ptr %v59, align 4
  %v61 = getelementptr inbounds float, ptr %v5, i64 %v51
  %v62 = load <4 x float>, ptr %v61, align 4
  %v63 = fadd <4 x float> %v60, %v62
  %v64 = fadd <4 x float> %v56, %v63
  %v65 = insertelement <4 x float> poison, float %v45, i64 0
  %v66 = shufflevector <4 x float> %v65, <4 x float> poison, <4 x i32> zeroinitializer
  %v67 = fsub <4 x float> %v64, %v66
  %v68 = fmul <4 x float> %v67, %v67
  %v69 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v67, <4 x float> %v67, <4 x float> %v52)
  %v70 = add nsw i64 %v51, 4
  br label %L48
L50:
  %v72 = shufflevector <4 x float> %v52, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v73 = shufflevector <4 x float> %v52, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v74 = fadd <2 x float> %v72, %v73
  %v75 = extractelement <2 x float> %v74, i64 0
  %v76 = extractelement <2 x float> %v74, i64 1
  %v77 = fadd float %v75, %v76
  %v78 = fadd float 0x0000000000000000, %v77
  %v79 = fdiv float %v78, 0x4010000000000000
  %v80 = fadd float %v79, 0x3EE4F8B580000000
  %v81 = call float @llvm.sqrt.f32(float %v80)
  %v82 = fdiv float 0x3FF0000000000000, %v81
  br label %L83
L83:
  %v86 = phi i64 [ 0, %L50 ], [ %v114, %L84 ]
  %v115 = icmp slt i64 %v86, 4
  br i1 %v115, label %L84, label %L85
L84:
  %v87 = mul nsw i64 4, %v15
  %v88 = add nsw i64 %v87, %v86
  %v89 = getelementptr inbounds float, ptr %v1, i64 %v88
  %v90 = load <4 x float>, ptr %v89, align 4
  %v91 = mul nsw i64 4, %v15
  %v92 = add nsw i64 %v91, %v86
  %v93 = getelementptr inbounds float, ptr %v3, i64 %v92
  %v94 = load <4 x float>, ptr %v93, align 4
  %v95 = getelementptr inbounds float, ptr %v5, i64 %v86
  %v96 = load <4 x float>, ptr %v95, align 4
  %v97 = fadd <4 x float> %v94, %v96
  %v98 = fadd <4 x float> %v90, %v97
  %v99 = insertelement <4 x float> poison, float %v45, i64 0
  %v100 = shufflevector <4 x float> %v99, <4 x float> poison, <4 x i32> zeroinitializer
  %v101 = fsub <4 x float> %v98, %v100
  %v102 = insertelement <4 x float> poison, float %v82, i64 0
  %v103 = shufflevector <4 x float> %v102, <4 x float> poison, <4 x i32> zeroinitializer
  %v104 = fmul <4 x float> %v101, %v103
  %v105 = getelementptr inbounds float, ptr %v7, i64 %v86
  %v106 = load <4 x float>, ptr %v105, align 4
  %v107 = fmul <4 x float> %v104, %v106
  %v108 = getelementptr inbounds float, ptr %v9, i64 %v86
  %v109 = load <4 x float>, ptr %v108, align 4
  %v110 = fadd <4 x float> %v107, %v109
  %v111 = mul nsw i64 4, %v15
  %v112 = add nsw i64 %v111, %v86
  %v113 = getelementptr inbounds float, ptr %v11, i64 %v112
  store <4 x float> %v110, ptr %v113, align 4
  %v114 = add nsw i64 %v86, 4
  br label %L83
L85:
  %v116 = add nsw i64 %v15, 1
  br label %L12
L14:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @llvm.sqrt.f32(float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
