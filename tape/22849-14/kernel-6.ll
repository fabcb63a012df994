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
  br label %L8
L8:
  %v11 = phi i64 [ %begin, %entry ], [ %v116, %L85 ]
  %v117 = icmp slt i64 %v11, %end
  br i1 %v117, label %L9, label %L10
L9:
  %v12 = urem i64 %v11, 3
  %v13 = udiv i64 %v11, 3
  %v14 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v15 = shufflevector <4 x float> %v14, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L16
L16:
  %v19 = phi i64 [ 0, %L9 ], [ %v35, %L17 ]
  %v20 = phi <4 x float> [ %v15, %L9 ], [ %v34, %L17 ]
  %v36 = icmp slt i64 %v19, 4
  br i1 %v36, label %L17, label %L18
L17:
  %v21 = mul nsw i64 12, %v13
  %v22 = mul nsw i64 4, %v12
  %v23 = add nsw i64 %v21, %v22
  %v24 = add nsw i64 %v23, %v19
  %v25 = getelementptr inbounds float, ptr %v1, i64 %v24
  %v26 = load <4 x float>, ptr %v25, align 4
  %v27 = mul nsw i64 4, %v13
  %v28 = mul nsw i64 8, %v12
  %v29 = add nsw i64 %v27, %v28
  %v30 = add nsw i64 %v29, %v19
  %v31 = getelementptr inbounds float, ptr %v3, i64 %v30
  %v32 = load <4 x float>, ptr %v31, align 4
  %v33 = fadd <4 x float> %v26, %v32
  %v34 = fadd <4 x float> %v20, %v33
  %v35 = add nsw i64 %v19, 4
  br label %L16
L18:
  %v37 = shufflevector <4 x float> %v20, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v38 = shufflevector <4 x float> %v20, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v39 = fadd <2 x float> %v37, %v38
  %v40 = extractelement <2 x float> %v39, i64 0
  %v41 = extractelement <2 x float> %v39, i64 1
  %v42 = fadd float %v40, %v41
  %v43 = fadd float 0x0000000000000000, %v42
  %v44 = fdiv float %v43, 0x4010000000000000
  %v45 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v46 = shufflevector <4 x float> %v45, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L47
L47:
  %v50 = phi i64 [ 0, %L18 ], [ %v70, %L48 ]
  %v51 = phi <4 x float> [ %v46, %L18 ], [ %v69, %L48 ]
  %v71 = icmp slt i64 %v50, 4
  br i1 %v71, label %L48, label %L49
L48:
  %v52 = mul nsw i64 12, %v13
  %v53 = mul nsw i64 4, %v12
  %v54 = add nsw i64 %v52, %v53
  %v55 = add nsw i64 %v54, %v50
  %v56 = getelementptr inbounds float, ptr %v1, i64 %v55
  %v57 = load <4 x float>, ptr %v56, align 4
  %v58 = mul nsw i64 4, %v13
  %v59 = mul nsw i64 8, %v12
  %v60 = add nsw i64 %v58, %v59
  %v61 = add nsw i64 %v60, %v50
  %v62 = getelementptr inbounds float, ptr %v3, i64 %v61
  %v63 = load <4 x float>, ptr %v62, align 4
  %v64 = fadd <4 x float> %v57, %v63
  %v65 = insertelement <4 x float> poison, float %v44, i64 0
  %v66 = shufflevector <4 x float> %v65, <4 x float> poison, <4 x i32> zeroinitializer
  %v67 = fsub <4 x float> %v64, %v66
  %v68 = fmul <4 x float> %v67, %v67
  %v69 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v67, <4 x float> %v67, <4 x float> %v51)
  %v70 = add nsw i64 %v50, 4
  br label %L47
L49:
  %v72 = shufflevector <4 x float> %v51, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v73 = shufflevector <4 x float> %v51, <4 x float> poison, <2 x i32> <i32 2, i32 3>
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
  %v86 = phi i64 [ 0, %L49 ], [ %v114, %L84 ]
  %v115 = icmp slt i64 %v86, 4
  br i1 %v115, label %L84, label %L85
L84:
  %v87 = mul nsw i64 12, %v13
  %v88 = mul nsw i64 4, %v12
  %v89 = add nsw i64 %v87, %v88
  %v90 = add nsw i64 %v89, %v86
  %v91 = getelementptr inbounds float, ptr %v1, i64 %v90
  %v92 = load <4 x float>, ptr %v91, align 4
  %v93 = mul nsw i64 4, %v13
  %v94 = mul nsw i64 8, %v12
  %v95 = add nsw i64 %v93, %v94
  %v96 = add nsw i64 %v95, %v86
  %v97 = getelementptr inbounds float, ptr %v3, i64 %v96
  %v98 = load <4 x float>, ptr %v97, align 4
  %v99 = fadd <4 x float> %v92, %v98
  %v100 = insertelement <4 x float> poison, float %v44, i64 0
  %v101 = shufflevector <4 x float> %v100, <4 x float> poison, <4 x i32> zeroinitializer
  %v102 = fsub <4 x float> %v99, %v101
  %v103 = insertelement <4 x float> poison, float %v82, i64 0
  %v104 = shufflevector <4 x float> %v103, <4 x float> poison, <4 x i32> zeroinitializer
  %v105 = fmul <4 x float> %v102, %v104
  %v106 = getelementptr inbounds float, ptr %v5, i64 %v86
  %v107 = load <4 x float>, ptr %v106, align 4
  %v108 = fmul <4 x float> %v105, %v107
  %v109 = mul nsw i64 12, %v13
  %v110 = mul nsw i64 4, %v12
  %v111 = add nsw i64 %v109, %v110
  %v112 = add nsw i64 %v111, %v86
  %v113 = getelementptr inbounds float, ptr %v7, i64 %v112
  store <4 x float> %v108, ptr %v113, align 4
  %v114 = add nsw i64 %v86, 4
  br label %L83
L85:
  %v116 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @llvm.sqrt.f32(float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
