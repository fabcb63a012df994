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
  %v11 = phi i64 [ %begin, %entry ], [ %v100, %L75 ]
  %v101 = icmp slt i64 %v11, %end
  br i1 %v101, label %L9, label %L10
L9:
  %v12 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v13 = shufflevector <4 x float> %v12, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L14
L14:
  %v17 = phi i64 [ 0, %L9 ], [ %v29, %L15 ]
  %v18 = phi <4 x float> [ %v13, %L9 ], [ %v28, %L15 ]
  %v30 = icmp slt i64 %v17, 4
  br i1 %v30, label %L15, label %L16
L15:
  %v19 = mul nsw i64 4, %v11
  %v20 = add nsw i64 %v19, %v17
  %v21 = getelementptr inbounds float, ptr %v1, i64 %v20
  %v22 = load <4 x float>, ptr %v21, align 4
  %v23 = mul nsw i64 4, %v11
  %v24 = add nsw i64 %v23, %v17
  %v25 = getelementptr inbounds float, ptr %v3, i64 %v24
  %v26 = load <4 x float>, ptr %v25, align 4
  %v27 = fadd <4 x float> %v22, %v26
  %v28 = fadd <4 x float> %v18, %v27
  %v29 = add nsw i64 %v17, 4
  br label %L14
L16:
  %v31 = shufflevector <4 x float> %v18, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v32 = shufflevector <4 x float> %v18, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v33 = fadd <2 x float> %v31, %v32
  %v34 = extractelement <2 x float> %v33, i64 0
  %v35 = extractelement <2 x float> %v33, i64 1
  %v36 = fadd float %v34, %v35
  %v37 = fadd float 0x0000000000000000, %v36
  %v38 = fdiv float %v37, 0x4010000000000000
  %v39 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v40 = shufflevector <4 x float> %v39, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L41
L41:
  %v44 = phi i64 [ 0, %L16 ], [ %v60, %L42 ]
  %v45 = phi <4 x float> [ %v40, %L16 ], [ %v59, %L42 ]
  %v61 = icmp slt i64 %v44, 4
  br i1 %v61, label %L42, label %L43
L42:
  %v46 = mul nsw i64 4, %v11
  %v47 = add nsw i64 %v46, %v44
  %v48 = getelementptr inbounds float, ptr %v1, i64 %v47
  %v49 = load <4 x float>, ptr %v48, align 4
  %v50 = mul nsw i64 4, %v11
  %v51 = add nsw i64 %v50, %v44
  %v52 = getelementptr inbounds float, ptr %v3, i64 %v51
  %v53 = load <4 x float>, ptr %v52, align 4
  %v54 = fadd <4 x float> %v49, %v53
  %v55 = insertelement <4 x float> poison, float %v38, i64 0
  %v56 = shufflevector <4 x float> %v55, <4 x float> poison, <4 x i32> zeroinitializer
  %v57 = fsub <4 x float> %v54, %v56
  %v58 = fmul <4 x float> %v57, %v57
  %v59 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v57, <4 x float> %v57, <4 x float> %v45)
  %v60 = add nsw i64 %v44, 4
  br label %L41
L43:
  %v62 = shufflevector <4 x float> %v45, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v63 = shufflevector <4 x float> %v45, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v64 = fadd <2 x float> %v62, %v63
  %v65 = extractelement <2 x float> %v64, i64 0
  %v66 = extractelement <2 x float> %v64, i64 1
  %v67 = fadd float %v65, %v66
  %v68 = fadd float 0x0000000000000000, %v67
  %v69 = fdiv float %v68, 0x4010000000000000
  %v70 = fadd float %v69, 0x3EE4F8B580000000
  %v71 = call float @llvm.sqrt.f32(float %v70)
  %v72 = fdiv float 0x3FF0000000000000, %v71
  br label %L73
L73:
  %v76 = phi i64 [ 0, %L43 ], [ %v98, %L74 ]
  %v99 = icmp slt i64 %v76, 4
  br i1 %v99, label %L74, label %L75
L74:
  %v77 = mul nsw i64 4, %v11
  %v78 = add nsw i64 %v77, %v76
  %v79 = getelementptr inbounds float, ptr %v1, i64 %v78
  %v80 = load <4 x float>, ptr %v79, align 4
  %v81 = mul nsw i64 4, %v11
  %v82 = add nsw i64 %v81, %v76
  %v83 = getelementptr inbounds float, ptr %v3, i64 %v82
  %v84 = load <4 x float>, ptr %v83, align 4
  %v85 = fadd <4 x float> %v80, %v84
  %v86 = insertelement <4 x float> poison, float %v38, i64 0
  %v87 = shufflevector <4 x float> %v86, <4 x float> poison, <4 x i32> zeroinitializer
  %v88 = fsub <4 x float> %v85, %v87
  %v89 = insertelement <4 x float> poison, float %v72, i64 0
  %v90 = shufflevector <4 x float> %v89, <4 x float> poison, <4 x i32> zeroinitializer
  %v91 = fmul <4 x float> %v88, %v90
  %v92 = getelementptr inbounds float, ptr %v5, i64 %v76
  %v93 = load <4 x float>, ptr %v92, align 4
  %v94 = fmul <4 x float> %v91, %v93
  %v95 = mul nsw i64 4, %v11
  %v96 = add nsw i64 %v95, %v76
  %v97 = getelementptr inbounds float, ptr %v7, i64 %v96
  store <4 x float> %v94, ptr %v97, align 4
  %v98 = add nsw i64 %v76, 4
  br label %L73
L75:
  %v100 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @llvm.sqrt.f32(float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
