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
  %v12 = getelementptr ptr, ptr %buffers, i64 6
  %v13 = load ptr, ptr %v12
  br label %L14
L14:
  %v17 = phi i64 [ %begin, %entry ], [ %v119, %L92 ]
  %v120 = icmp slt i64 %v17, %end
  br i1 %v120, label %L15, label %L16
L15:
  %v18 = urem i64 %v17, 3
  %v19 = udiv i64 %v17, 3
  %v20 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v21 = shufflevector <4 x float> %v20, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L22
L22:
  %v25 = phi i64 [ 0, %L15 ], [ %v49, %L23 ]
  %v26 = phi <4 x float> [ %v21, %L15 ], [ %v43, %L23 ]
  %v50 = icmp slt i64 %v25, 4
  br i1 %v50, label %L23, label %L24
L23:
  %v27 = mul nsw i64 12, %v19
  %v28 = mul nsw i64 4, %v18
  %v29 = add nsw i64 %v27, %v28
  %v30 = add nsw i64 %v29, %v25
  %v31 = getelementptr inbounds float, ptr %v1, i64 %v30
  %v32 = load <4 x float>, ptr %v31, align 4
  %v33 = mul nsw i64 4, %v19
  %v34 = mul nsw i64 8, %v18
  %v35 = add nsw i64 %v33, %v34
  %v36 = add nsw i64 %v35, %v25
  %v37 = getelementptr inbounds float, ptr %v3, i64 %v36
  %v38 = load <4 x float>, ptr %v37, align 4
  %v39 = getelementptr inbounds float, ptr %v5, i64 %v25
  %v40 = load <4 x float>, ptr %v39, align 4
  %v41 = fadd <4 x float> %v38, %v40
  %v42 = fadd <4 x float> %v32, %v41
  %v43 = fadd <4 x float> %v26, %v42
  %v44 = mul nsw i64 12, %v19
  %v45 = mul nsw i64 4, %v18
  %v46 = add nsw i64 %v44, %v45
  %v47 = add nsw i64 %v46, %v25
  %v48 = getelementptr inbounds float, ptr %v7, i64 %v47
  store <4 x float> %v42, ptr %v48, align 4
  %v49 = add nsw i64 %v25, 4
  br label %L22
L24:
  %v51 = shufflevector <4 x float> %v26, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v52 = shufflevector <4 x float> %v26, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v53 = fadd <2 x float> %v51, %v52
  %v54 = extractelement <2 x float> %v53, i64 0
  %v55 = extractelement <2 x float> %v53, i64 1
  %v56 = fadd float %v54, %v55
  %v57 = fadd float 0x0000000000000000, %v56
  %v58 = fdiv float %v57, 0x4010000000000000
  %v59 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v60 = shufflevector <4 x float> %v59, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L61
L61:
  %v64 = phi i64 [ 0, %L24 ], [ %v77, %L62 ]
  %v65 = phi <4 x float> [ %v60, %L24 ], [ %v76, %L62 ]
  %v78 = icmp slt i64 %v64, 4
  br i1 %v78, label %L62, label %L63
L62:
  %v66 = mul nsw i64 12, %v19
  %v67 = mul nsw i64 4, %v18
  %v68 = add nsw i64 %v66, %v67
  %v69 = add nsw i64 %v68, %v64
  %v70 = getelementptr inbounds float, ptr %v7, i64 %v69
  %v71 = load <4 x float>, ptr %v70, align 4
  %v72 = insertelement <4 x float> poison, float %v58, i64 0
  %v73 = shufflevector <4 x float> %v72, <4 x float> poison, <4 x i32> zeroinitializer
  %v74 = fsub <4 x float> %v71, %v73
  %v75 = fmul <4 x float> %v74, %v74
  %v76 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v74, <4 x float> %v74, <4 x float> %v65)
  %v77 = add nsw i64 %v64, 4
  br label %L61
L63:
  %v79 = shufflevector <4 x float> %v65, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v80 = shufflevector <4 x float> %v65, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v81 = fadd <2 x float> %v79, %v80
  %v82 = extractelement <2 x float> %v81, i64 0
  %v83 = extractelement <2 x float> %v81, i64 1
  %v84 = fadd float %v82, %v83
  %v85 = fadd float 0x0000000000000000, %v84
  %v86 = fdiv float %v85, 0x4010000000000000
  %v87 = fadd float %v86, 0x3EE4F8B580000000
  %v88 = call float @llvm.sqrt.f32(float %v87)
  %v89 = fdiv float 0x3FF0000000000000, %v88
  br label %L90
L90:
  %v93 = phi i64 [ 0, %L63 ], [ %v117, %L91 ]
  %v118 = icmp slt i64 %v93, 4
  br i1 %v118, label %L91, label %L92
L91:
  %v94 = mul nsw i64 12, %v19
  %v95 = mul nsw i64 4, %v18
  %v96 = add nsw i64 %v94, %v95
  %v97 = add nsw i64 %v96, %v93
  %v98 = getelementptr inbounds float, ptr %v7, i64 %v97
  %v99 = load <4 x float>, ptr %v98, align 4
  %v100 = insertelement <4 x float> poison, float %v58, i64 0
  %v101 = shufflevector <4 x float> %v100, <4 x float> poison, <4 x i32> zeroinitializer
  %v102 = fsub <4 x float> %v99, %v101
  %v103 = insertelement <4 x float> poison, float %v89, i64 0
  %v104 = shufflevector <4 x float> %v103, <4 x float> poison, <4 x i32> zeroinitializer
  %v105 = fmul <4 x float> %v102, %v104
  %v106 = getelementptr inbounds float, ptr %v9, i64 %v93
  %v107 = load <4 x float>, ptr %v106, align 4
  %v108 = fmul <4 x float> %v105, %v107
  %v109 = getelementptr inbounds float, ptr %v11, i64 %v93
  %v110 = load <4 x float>, ptr %v109, align 4
  %v111 = fadd <4 x float> %v108, %v110
  %v112 = mul nsw i64 4, %v19
  %v113 = mul nsw i64 8, %v18
  %v114 = add nsw i64 %v112, %v113
  %v115 = add nsw i64 %v114, %v93
  %v116 = getelementptr inbounds float, ptr %v13, i64 %v115
  store <4 x float> %v111, ptr %v116, align 4
  %v117 = add nsw i64 %v93, 4
  br label %L90
L92:
  %v119 = add nsw i64 %v17, 1
  br label %L14
L16:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @llvm.sqrt.f32(float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
