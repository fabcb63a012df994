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
  %v11 = phi i64 [ %begin, %entry ], [ %v88, %L65 ]
  %v89 = icmp slt i64 %v11, %end
  br i1 %v89, label %L9, label %L10
L9:
  %v12 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v13 = shufflevector <4 x float> %v12, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L14
L14:
  %v17 = phi i64 [ 0, %L9 ], [ %v24, %L15 ]
  %v18 = phi <4 x float> [ %v13, %L9 ], [ %v23, %L15 ]
  %v25 = icmp slt i64 %v17, 4
  br i1 %v25, label %L15, label %L16
L15:
  %v19 = mul nsw i64 4, %v11
  %v20 = add nsw i64 %v19, %v17
  %v21 = getelementptr inbounds float, ptr %v1, i64 %v20
  %v22 = load <4 x float>, ptr %v21, align 4
  %v23 = fadd <4 x float> %v18, %v22
  %v24 = add nsw i64 %v17, 4
  br label %L14
L16:
  %v26 = shufflevector <4 x float> %v18, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v27 = shufflevector <4 x float> %v18, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v28 = fadd <2 x float> %v26, %v27
  %v29 = extractelement <2 x float> %v28, i64 0
  %v30 = extractelement <2 x float> %v28, i64 1
  %v31 = fadd float %v29, %v30
  %v32 = fadd float 0x0000000000000000, %v31
  %v33 = fdiv float %v32, 0x4010000000000000
  %v34 = insertelement <4 x float> poison, float 0x8000000000000000, i64 0
  %v35 = shufflevector <4 x float> %v34, <4 x float> poison, <4 x i32> zeroinitializer
  br label %L36
L36:
  %v39 = phi i64 [ 0, %L16 ], [ %v50, %L37 ]
  %v40 = phi <4 x float> [ %v35, %L16 ], [ %v49, %L37 ]
  %v51 = icmp slt i64 %v39, 4
  br i1 %v51, label %L37, label %L38
L37:
  %v41 = mul nsw i64 4, %v11
  %v42 = add nsw i64 %v41, %v39
  %v43 = getelementptr inbounds float, ptr %v1, i64 %v42
  %v44 = load <4 x float>, ptr %v43, align 4
  %v45 = insertelement <4 x float> poison, float %v33, i64 0
  %v46 = shufflevector <4 x float> %v45, <4 x float> poison, <4 x i32> zeroinitializer
  %v47 = fsub <4 x float> %v44, %v46
  %v48 = fmul <4 x float> %v47, %v47
  %v49 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v47, <4 x float> %v47, <4 x float> %v40)
  %v50 = add nsw i64 %v39, 4
  br label %L36
L38:
  %v52 = shufflevector <4 x float> %v40, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v53 = shufflevector <4 x float> %v40, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v54 = fadd <2 x float> %v52, %v53
  %v55 = extractelement <2 x float> %v54, i64 0
  %v56 = extractelement <2 x float> %v54, i64 1
  %v57 = fadd float %v55, %v56
  %v58 = fadd float 0x0000000000000000, %v57
  %v59 = fdiv float %v58, 0x4010000000000000
  %v60 = fadd float %v59, 0x3EE4F8B580000000
  %v61 = call float @llvm.sqrt.f32(float %v60)
  %v62 = fdiv float 0x3FF0000000000000, %v61
  br label %L63
L63:
  %v66 = phi i64 [ 0, %L38 ], [ %v86, %L64 ]
  %v87 = icmp slt i64 %v66, 4
  br i1 %v87, label %L64, label %L65
L64:
  %v67 = mul nsw i64 4, %v11
  %v68 = add nsw i64 %v67, %v66
  %v69 = getelementptr inbounds float, ptr %v1, i64 %v68
  %v70 = load <4 x float>, ptr %v69, align 4
  %v71 = insertelement <4 x float> poison, float %v33, i64 0
  %v72 = shufflevector <4 x float> %v71, <4 x float> poison, <4 x i32> zeroinitializer
  %v73 = fsub <4 x float> %v70, %v72
  %v74 = insertelement <4 x float> poison, float %v62, i64 0
  %v75 = shufflevector <4 x float> %v74, <4 x float> poison, <4 x i32> zeroinitializer
  %v76 = fmul <4 x float> %v73, %v75
  %v77 = getelementptr inbounds float, ptr %v3, i64 %v66
  %v78 = load <4 x float>, ptr %v77, align 4
  %v79 = fmul <4 x float> %v76, %v78
  %v80 = getelementptr inbounds float, ptr %v5, i64 %v66
  %v81 = load <4 x float>, ptr %v80, align 4
  %v82 = fadd <4 x float> %v79, %v81
  %v83 = mul nsw i64 4, %v11
  %v84 = add nsw i64 %v83, %v66
  %v85 = getelementptr inbounds float, ptr %v7, i64 %v84
  store <4 x float> %v82, ptr %v85, align 4
  %v86 = add nsw i64 %v66, 4
  br label %L63
L65:
  %v88 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @llvm.sqrt.f32(float)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
