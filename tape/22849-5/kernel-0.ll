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
  %v11 = phi i64 [ %begin, %entry ], [ %v98, %L71 ]
  %v99 = icmp slt i64 %v11, %end
  br i1 %v99, label %L9, label %L10
L9:
  %v12 = urem i64 %v11, 2
  %v13 = udiv i64 %v11, 2
  %v14 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v15 = shufflevector <4 x float> %v14, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L16
L16:
  %v19 = phi i64 [ 0, %L9 ], [ %v28, %L17 ]
  %v20 = phi <4 x float> [ %v15, %L9 ], [ %v27, %L17 ]
  %v29 = icmp slt i64 %v19, 4
  br i1 %v29, label %L17, label %L18
L17:
  %v21 = mul nsw i64 4, %v13
  %v22 = mul nsw i64 12, %v12
  %v23 = add nsw i64 %v21, %v22
  %v24 = add nsw i64 %v23, %v19
  %v25 = getelementptr inbounds float, ptr %v1, i64 %v24
  %v26 = load <4 x float>, ptr %v25, align 4
  %v27 = fadd <4 x float> %v20, %v26
  %v28 = add nsw i64 %v19, 4
  br label %L16
L18:
  %v30 = shufflevector <4 x float> %v20, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v31 = shufflevector <4 x float> %v20, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v32 = fadd <2 x float> %v30, %v31
  %v33 = extractelement <2 x float> %v32, i64 0
  %v34 = extractelement <2 x float> %v32, i64 1
  %v35 = fadd float %v33, %v34
  %v36 = fadd float 0x0000000000000000, %v35
  %v37 = fdiv float %v36, 0x4010000000000000
  %v38 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v39 = shufflevector <4 x float> %v38, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L40
L40:
  %v43 = phi i64 [ 0, %L18 ], [ %v56, %L41 ]
  %v44 = phi <4 x float> [ %v39, %L18 ], [ %v55, %L41 ]
  %v57 = icmp slt i64 %v43, 4
  br i1 %v57, label %L41, label %L42
L41:
  %v45 = mul nsw i64 4, %v13
  %v46 = mul nsw i64 12, %v12
  %v47 = add nsw i64 %v45, %v46
  %v48 = add nsw i64 %v47, %v43
  %v49 = getelementptr inbounds float, ptr %v1, i64 %v48
  %v50 = load <4 x float>, ptr %v49, align 4
  %v51 = insertelement <4 x float> poison, float %v37, i64 0
  %v52 = shufflevector <4 x float> %v51, <4 x float> poison, <4 x i32> zeroinitializer
  %v53 = fsub <4 x float> %v50, %v52
  %v54 = fmul <4 x float> %v53, %v53
  %v55 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v53, <4 x float> %v53, <4 x float> %v44)
  %v56 = add nsw i64 %v43, 4
  br label %L40
L42:
  %v58 = shufflevector <4 x float> %v44, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v59 = shufflevector <4 x float> %v44, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v60 = fadd <2 x float> %v58, %v59
  %v61 = extractelement <2 x float> %v60, i64 0
  %v62 = extractelement <2 x float> %v60, i64 1
  %v63 = fadd float %v61, %v62
  %v64 = fadd float 0x0000000000000000, %v63
  %v65 = fdiv float %v64, 0x4010000000000000
  %v66 = fadd float %v65, 0x3EE4F8B580000000
  %v67 = call float @llvm.sqrt.f32(float %v66)
  %v68 = fdiv float 0x3FF0000000000000, %v67
  br label %L69
L69:
  %v72 = phi i64 [ 0, %L42 ], [ %v96, %L70 ]
  %v97 = icmp slt i64 %v72, 4
  br i1 %v97, label %L70, label %L71
L70:
  %v73 = mul nsw i64 4, %v13
  %v74 = mul nsw i64 12, %v12
  %v75 = add nsw i64 %v73, %v74
  %v76 = add nsw i64 %v75, %v72
  %v77 = getelementptr inbounds float, ptr %v1, i64 %v76
  %v78 = load <4 x float>, ptr %v77, align 4
  %v79 = insertelement <4 x float> poison, float %v37, i64 0
  %v80 = shufflevector <4 x float> %v79, <4 x float> poison, <4 x i32> zeroinitializer
  %v81 = fsub <4 x float> %v78, %v80
  %v82 = insertelement <4 x float> poison, float %v68, i64 0
  %v83 = shufflevector <4 x float> %v82, <4 x float> poison, <4 x i32> zeroinitializer
  %v84 = fmul <4 x float> %v81, %v83
  %v85 = getelementptr inbounds float, ptr %v3, i64 %v72
  %v86 = load <4 x float>, ptr %v85, align 4
  %v87 = fmul <4 x float> %v84, %v86
  %v88 = getelementptr inbounds float, ptr %v5, i64 %v72
  %v89 = load <4 x float>, ptr %v88, align 4
  %v90 = fadd <4 x float> %v87, %v89
  %v91 = mul nsw i64 8, %v13
  %v92 = mul nsw i64 4, %v12
  %v93 = add nsw i64 %v91, %v92
  %v94 = add nsw i64 %v93, %v72
  %v95 = getelementptr inbounds float, ptr %v7, i64 %v94
  store <4 x float> %v90, ptr %v95, align 4
  %v96 = add nsw i64 %v72, 4
  br label %L69
L71:
  %v98 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @llvm.sqrt.f32(float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
