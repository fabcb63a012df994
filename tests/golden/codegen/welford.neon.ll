define dso_local i32 @welford(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  %v6 = insertelement <8 x float> poison, float 0x0000000000000000, i64 0
  %v7 = shufflevector <8 x float> %v6, <8 x float> poison, <8 x i32> zeroinitializer
  %v8 = insertelement <8 x float> poison, float 0x0000000000000000, i64 0
  %v9 = shufflevector <8 x float> %v8, <8 x float> poison, <8 x i32> zeroinitializer
  %v10 = insertelement <8 x float> poison, float 0x0000000000000000, i64 0
  %v11 = shufflevector <8 x float> %v10, <8 x float> poison, <8 x i32> zeroinitializer
  br label %L12
L12:
  %v15 = phi i64 [ 0, %entry ], [ %v29, %L13 ]
  %v16 = phi <8 x float> [ %v7, %entry ], [ %v26, %L13 ]
  %v17 = phi <8 x float> [ %v9, %entry ], [ %v28, %L13 ]
  %v18 = phi <8 x float> [ %v11, %entry ], [ %v23, %L13 ]
  %v30 = icmp slt i64 %v15, 4096
  br i1 %v30, label %L13, label %L14
L13:
  %v19 = getelementptr inbounds float, ptr %v1, i64 %v15
  %v20 = load <8 x float>, ptr %v19, align 4
  %v21 = insertelement <8 x float> poison, float 0x3FF0000000000000, i64 0
  %v22 = shufflevector <8 x float> %v21, <8 x float> poison, <8 x i32> zeroinitializer
  %v23 = fadd <8 x float> %v18, %v22
  %v24 = fsub <8 x float> %v20, %v16
  %v25 = fdiv <8 x float> %v24, %v23
  %v26 = fadd <8 x float> %v16, %v25
  %v27 = fsub <8 x float> %v20, %v26
  %v28 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v24, <8 x float> %v27, <8 x float> %v17)
  %v29 = add nsw i64 %v15, 8
  br label %L12
L14:
  %v31 = shufflevector <8 x float> %v16, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v32 = shufflevector <8 x float> %v16, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v33 = shufflevector <8 x float> %v17, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v34 = shufflevector <8 x float> %v17, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v35 = shufflevector <8 x float> %v18, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v36 = shufflevector <8 x float> %v18, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v37 = fadd <4 x float> %v35, %v36
  %v38 = fsub <4 x float> %v32, %v31
  %v39 = insertelement <4 x float> poison, float 0x0000000000000000, i64 0
  %v40 = shufflevector <4 x float> %v39, <4 x float> poison, <4 x i32> zeroinitializer
  %v41 = fcmp oeq <4 x float> %v37, %v40
  %v42 = insertelement <4 x float> poison, float 0x3FF0000000000000, i64 0
  %v43 = shufflevector <4 x float> %v42, <4 x float> poison, <4 x i32> zeroinitializer
  %v44 = select <4 x i1> %v41, <4 x float> %v43, <4 x float> %v37
  %v45 = fdiv <4 x float> %v36, %v44
  %v46 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v38, <4 x float> %v45, <4 x float> %v31)
  %v47 = fmul <4 x float> %v38, %v38
  %v48 = fmul <4 x float> %v35, %v45
  %v49 = fadd <4 x float> %v33, %v34
  %v50 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v47, <4 x float> %v48, <4 x float> %v49)
  %v51 = shufflevector <4 x float> %v46, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v52 = shufflevector <4 x float> %v46, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v53 = shufflevector <4 x float> %v50, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v54 = shufflevector <4 x float> %v50, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v55 = shufflevector <4 x float> %v37, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v56 = shufflevector <4 x float> %v37, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v57 = fadd <2 x float> %v55, %v56
  %v58 = fsub <2 x float> %v52, %v51
  %v59 = insertelement <2 x float> poison, float 0x0000000000000000, i64 0
  %v60 = shufflevector <2 x float> %v59, <2 x float> poison, <2 x i32> zeroinitializer
  %v61 = fcmp oeq <2 x float> %v57, %v60
  %v62 = insertelement <2 x float> poison, float 0x3FF0000000000000, i64 0
  %v63 = shufflevector <2 x float> %v62, <2 x float> poison, <2 x i32> zeroinitializer
  %v64 = select <2 x i1> %v61, <2 x float> %v63, <2 x float> %v57
  %v65 = fdiv <2 x float> %v56, %v64
  %v66 = call <2 x float> @llvm.fma.v2f32(<2 x float> %v58, <2 x float> %v65, <2 x float> %v51)
  %v67 = fmul <2 x float> %v58, %v58
  %v68 = fmul <2 x float> %v55, %v65
  %v69 = fadd <2 x float> %v53, %v54
  %v70 = call <2 x float> @llvm.fma.v2f32(<2 x float> %v67, <2 x float> %v68, <2 x float> %v69)
  %v71 = extractelement <2 x float> %v66, i64 0
  %v72 = extractelement <2 x float> %v66, i64 1
  %v73 = extractelement <2 x float> %v70, i64 0
  %v74 = extractelement <2 x float> %v70, i64 1
  %v75 = extractelement <2 x float> %v57, i64 0
  %v76 = extractelement <2 x float> %v57, i64 1
  %v77 = fadd float %v75, %v76
  %v78 = fsub float %v72, %v71
  %v79 = fcmp oeq float %v77, 0x0000000000000000
  %v80 = select i1 %v79, float 0x3FF0000000000000, float %v77
  %v81 = fdiv float %v76, %v80
  %v82 = call float @llvm.fma.f32(float %v78, float %v81, float %v71)
  %v83 = fmul float %v78, %v78
  %v84 = fmul float %v75, %v81
  %v85 = fadd float %v73, %v74
  %v86 = call float @llvm.fma.f32(float %v83, float %v84, float %v85)
  %v87 = getelementptr inbounds float, ptr %v3, i64 0
  store float %v82, ptr %v87, align 4
  %v88 = getelementptr inbounds float, ptr %v5, i64 0
  store float %v86, ptr %v88, align 4
  ret i32 0
}
declare <2 x float> @llvm.fma.v2f32(<2 x float>, <2 x float>, <2 x float>)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare float @llvm.fma.f32(float, float, float)
attributes #0 = { nounwind "prefer-vector-width"="128" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
