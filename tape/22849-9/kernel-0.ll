define dso_local i32 @tatara_kernel(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  br label %L6
L6:
  %v9 = phi i64 [ %begin, %entry ], [ %v93, %L69 ]
  %v94 = icmp slt i64 %v9, %end
  br i1 %v94, label %L7, label %L8
L7:
  %v10 = urem i64 %v9, 2
  %v11 = udiv i64 %v9, 2
  %v12 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v13 = shufflevector <4 x float> %v12, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L14
L14:
  %v17 = phi i64 [ 0, %L7 ], [ %v26, %L15 ]
  %v18 = phi <4 x float> [ %v13, %L7 ], [ %v25, %L15 ]
  %v27 = icmp slt i64 %v17, 4
  br i1 %v27, label %L15, label %L16
L15:
  %v19 = mul nsw i64 4, %v11
  %v20 = mul nsw i64 12, %v10
  %v21 = add nsw i64 %v19, %v20
  %v22 = add nsw i64 %v21, %v17
  %v23 = getelementptr inbounds float, ptr %v1, i64 %v22
  %v24 = load <4 x float>, ptr %v23, align 4
  %v25 = fadd <4 x float> %v18, %v24
  %v26 = add nsw i64 %v17, 4
  br label %L14
L16:
  %v28 = shufflevector <4 x float> %v18, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v29 = shufflevector <4 x float> %v18, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v30 = fadd <2 x float> %v28, %v29
  %v31 = extractelement <2 x float> %v30, i64 0
  %v32 = extractelement <2 x float> %v30, i64 1
  %v33 = fadd float %v31, %v32
  %v34 = fadd float 0x0000000000000000, %v33
  %v35 = fdiv float %v34, 0x4010000000000000
  %v36 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v37 = shufflevector <4 x float> %v36, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L38
L38:
  %v41 = phi i64 [ 0, %L16 ], [ %v54, %L39 ]
  %v42 = phi <4 x float> [ %v37, %L16 ], [ %v53, %L39 ]
  %v55 = icmp slt i64 %v41, 4
  br i1 %v55, label %L39, label %L40
L39:
  %v43 = mul nsw i64 4, %v11
  %v44 = mul nsw i64 12, %v10
  %v45 = add nsw i64 %v43, %v44
  %v46 = add nsw i64 %v45, %v41
  %v47 = getelementptr inbounds float, ptr %v1, i64 %v46
  %v48 = load <4 x float>, ptr %v47, align 4
  %v49 = insertelement <4 x float> poison, float %v35, i64 0
  %v50 = shufflevector <4 x float> %v49, <4 x float> poison, <4 x i32> zeroinitializer
  %v51 = fsub <4 x float> %v48, %v50
  %v52 = fmul <4 x float> %v51, %v51
  %v53 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v51, <4 x float> %v51, <4 x float> %v42)
  %v54 = add nsw i64 %v41, 4
  br label %L38
L40:
  %v56 = shufflevector <4 x float> %v42, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v57 = shufflevector <4 x float> %v42, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v58 = fadd <2 x float> %v56, %v57
  %v59 = extractelement <2 x float> %v58, i64 0
  %v60 = extractelement <2 x float> %v58, i64 1
  %v61 = fadd float %v59, %v60
  %v62 = fadd float 0x0000000000000000, %v61
  %v63 = fdiv float %v62, 0x4010000000000000
  %v64 = fadd float %v63, 0x3EE4F8B580000000
  %v65 = call float @llvm.sqrt.f32(float %v64)
  %v66 = fdiv float 0x3FF0000000000000, %v65
  br label %L67
L67:
  %v70 = phi i64 [ 0, %L40 ], [ %v91, %L68 ]
  %v92 = icmp slt i64 %v70, 4
  br i1 %v92, label %L68, label %L69
L68:
  %v71 = mul nsw i64 4, %v11
  %v72 = mul nsw i64 12, %v10
  %v73 = add nsw i64 %v71, %v72
  %v74 = add nsw i64 %v73, %v70
  %v75 = getelementptr inbounds float, ptr %v1, i64 %v74
  %v76 = load <4 x float>, ptr %v75, align 4
  %v77 = insertelement <4 x float> poison, float %v35, i64 0
  %v78 = shufflevector <4 x float> %v77, <4 x float> poison, <4 x i32> zeroinitializer
  %v79 = fsub <4 x float> %v76, %v78
  %v80 = insertelement <4 x float> poison, float %v66, i64 0
  %v81 = shufflevector <4 x float> %v80, <4 x float> poison, <4 x i32> zeroinitializer
  %v82 = fmul <4 x float> %v79, %v81
  %v83 = getelementptr inbounds float, ptr %v3, i64 %v70
  %v84 = load <4 x float>, ptr %v83, align 4
  %v85 = fmul <4 x float> %v82, %v84
  %v86 = mul nsw i64 8, %v11
  %v87 = mul nsw i64 4, %v10
  %v88 = add nsw i64 %v86, %v87
  %v89 = add nsw i64 %v88, %v70
  %v90 = getelementptr inbounds float, ptr %v5, i64 %v89
  store <4 x float> %v85, ptr %v90, align 4
  %v91 = add nsw i64 %v70, 4
  br label %L67
L69:
  %v93 = add nsw i64 %v9, 1
  br label %L6
L8:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @llvm.sqrt.f32(float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
