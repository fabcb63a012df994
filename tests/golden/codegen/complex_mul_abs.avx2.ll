define dso_local i32 @complex_mul_abs(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  br label %L6
L6:
  %v9 = phi i64 [ 0, %entry ], [ %v48, %L7 ]
  %v49 = icmp slt i64 %v9, 992
  br i1 %v49, label %L7, label %L8
L7:
  %v10 = getelementptr inbounds { float, float }, ptr %v1, i64 %v9
  %v11 = load <32 x float>, ptr %v10, align 4
  %v12 = shufflevector <32 x float> %v11, <32 x float> poison, <16 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14, i32 16, i32 18, i32 20, i32 22, i32 24, i32 26, i32 28, i32 30>
  %v13 = shufflevector <32 x float> %v11, <32 x float> poison, <16 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15, i32 17, i32 19, i32 21, i32 23, i32 25, i32 27, i32 29, i32 31>
  %v14 = getelementptr inbounds { float, float }, ptr %v3, i64 %v9
  %v15 = load <32 x float>, ptr %v14, align 4
  %v16 = shufflevector <32 x float> %v15, <32 x float> poison, <16 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14, i32 16, i32 18, i32 20, i32 22, i32 24, i32 26, i32 28, i32 30>
  %v17 = shufflevector <32 x float> %v15, <32 x float> poison, <16 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15, i32 17, i32 19, i32 21, i32 23, i32 25, i32 27, i32 29, i32 31>
  %v18 = fmul <16 x float> %v13, %v17
  %v19 = fmul <16 x float> %v12, %v16
  %v20 = fsub <16 x float> %v19, %v18
  %v21 = fmul <16 x float> %v13, %v16
  %v22 = fmul <16 x float> %v12, %v17
  %v23 = fadd <16 x float> %v22, %v21
  %v24 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %v20)
  %v25 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %v23)
  %v26 = fcmp ogt <16 x float> %v24, %v25
  %v27 = select <16 x i1> %v26, <16 x float> %v24, <16 x float> %v25
  %v28 = fcmp ogt <16 x float> %v27, splat (float 0x43D0000000000000)
  %v29 = fcmp olt <16 x float> %v27, splat (float 0x3D70000000000000)
  %v30 = select <16 x i1> %v29, <16 x float> splat (float 0x4630000000000000), <16 x float> splat (float 0x3FF0000000000000)
  %v31 = select <16 x i1> %v28, <16 x float> splat (float 0x3BB0000000000000), <16 x float> %v30
  %v32 = select <16 x i1> %v29, <16 x float> splat (float 0x39B0000000000000), <16 x float> splat (float 0x3FF0000000000000)
  %v33 = select <16 x i1> %v28, <16 x float> splat (float 0x4430000000000000), <16 x float> %v32
  %v34 = fmul <16 x float> %v24, %v31
  %v35 = fmul <16 x float> %v25, %v31
  %v36 = fmul <16 x float> %v35, %v35
  %v37 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v34, <16 x float> %v34, <16 x float> %v36)
  %v38 = call <16 x float> @llvm.sqrt.v16f32(<16 x float> %v37)
  %v39 = fmul <16 x float> %v38, %v33
  %v40 = fcmp oeq <16 x float> %v25, splat (float 0x7FF0000000000000)
  %v41 = fcmp oeq <16 x float> %v24, splat (float 0x7FF0000000000000)
  %v42 = or <16 x i1> %v41, %v40
  %v43 = select <16 x i1> %v42, <16 x float> splat (float 0x7FF0000000000000), <16 x float> %v39
  %v44 = getelementptr inbounds float, ptr %v5, i64 %v9
  %v45 = shufflevector <16 x float> %v43, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  store <8 x float> %v45, ptr %v44, align 4
  %v46 = shufflevector <16 x float> %v43, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v47 = getelementptr inbounds float, ptr %v44, i64 8
  store <8 x float> %v46, ptr %v47, align 4
  %v48 = add nsw i64 %v9, 16
  br label %L6
L8:
  %v52 = sub i64 1000, 992
  %v53 = icmp sgt i64 %v52, 0
  br i1 %v53, label %L50, label %L51
L50:
  %v54 = trunc i64 %v52 to i32
  %v55 = insertelement <16 x i32> poison, i32 %v54, i64 0
  %v56 = shufflevector <16 x i32> %v55, <16 x i32> poison, <16 x i32> zeroinitializer
  %v57 = icmp sgt <16 x i32> %v56, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v58 = getelementptr inbounds { float, float }, ptr %v1, i64 992
  %v59 = shufflevector <16 x i1> %v57, <16 x i1> zeroinitializer, <32 x i32> <i32 0, i32 0, i32 1, i32 1, i32 2, i32 2, i32 3, i32 3, i32 4, i32 4, i32 5, i32 5, i32 6, i32 6, i32 7, i32 7, i32 8, i32 8, i32 9, i32 9, i32 10, i32 10, i32 11, i32 11, i32 12, i32 12, i32 13, i32 13, i32 14, i32 14, i32 15, i32 15>
  %v60 = call <32 x float> @llvm.masked.load.v32f32.p0(ptr align 4 %v58, <32 x i1> %v59, <32 x float> zeroinitializer)
  %v61 = shufflevector <32 x float> %v60, <32 x float> poison, <16 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14, i32 16, i32 18, i32 20, i32 22, i32 24, i32 26, i32 28, i32 30>
  %v62 = shufflevector <32 x float> %v60, <32 x float> poison, <16 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15, i32 17, i32 19, i32 21, i32 23, i32 25, i32 27, i32 29, i32 31>
  %v63 = getelementptr inbounds { float, float }, ptr %v3, i64 992
  %v64 = shufflevector <16 x i1> %v57, <16 x i1> zeroinitializer, <32 x i32> <i32 0, i32 0, i32 1, i32 1, i32 2, i32 2, i32 3, i32 3, i32 4, i32 4, i32 5, i32 5, i32 6, i32 6, i32 7, i32 7, i32 8, i32 8, i32 9, i32 9, i32 10, i32 10, i32 11, i32 11, i32 12, i32 12, i32 13, i32 13, i32 14, i32 14, i32 15, i32 15>
  %v65 = call <32 x float> @llvm.masked.load.v32f32.p0(ptr align 4 %v63, <32 x i1> %v64, <32 x float> zeroinitializer)
  %v66 = shufflevector <32 x float> %v65, <32 x float> poison, <16 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14, i32 16, i32 18, i32 20, i32 22, i32 24, i32 26, i32 28, i32 30>
  %v67 = shufflevector <32 x float> %v65, <32 x float> poison, <16 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15, i32 17, i32 19, i32 21, i32 23, i32 25, i32 27, i32 29, i32 31>
  %v68 = fmul <16 x float> %v62, %v67
  %v69 = fmul <16 x float> %v61, %v66
  %v70 = fsub <16 x float> %v69, %v68
  %v71 = fmul <16 x float> %v62, %v66
  %v72 = fmul <16 x float> %v61, %v67
  %v73 = fadd <16 x float> %v72, %v71
  %v74 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %v70)
  %v75 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %v73)
  %v76 = fcmp ogt <16 x float> %v74, %v75
  %v77 = select <16 x i1> %v76, <16 x float> %v74, <16 x float> %v75
  %v78 = fcmp ogt <16 x float> %v77, splat (float 0x43D0000000000000)
  %v79 = fcmp olt <16 x float> %v77, splat (float 0x3D70000000000000)
  %v80 = select <16 x i1> %v79, <16 x float> splat (float 0x4630000000000000), <16 x float> splat (float 0x3FF0000000000000)
  %v81 = select <16 x i1> %v78, <16 x float> splat (float 0x3BB0000000000000), <16 x float> %v80
  %v82 = select <16 x i1> %v79, <16 x float> splat (float 0x39B0000000000000), <16 x float> splat (float 0x3FF0000000000000)
  %v83 = select <16 x i1> %v78, <16 x float> splat (float 0x4430000000000000), <16 x float> %v82
  %v84 = fmul <16 x float> %v74, %v81
  %v85 = fmul <16 x float> %v75, %v81
  %v86 = fmul <16 x float> %v85, %v85
  %v87 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v84, <16 x float> %v84, <16 x float> %v86)
  %v88 = call <16 x float> @llvm.sqrt.v16f32(<16 x float> %v87)
  %v89 = fmul <16 x float> %v88, %v83
  %v90 = fcmp oeq <16 x float> %v75, splat (float 0x7FF0000000000000)
  %v91 = fcmp oeq <16 x float> %v74, splat (float 0x7FF0000000000000)
  %v92 = or <16 x i1> %v91, %v90
  %v93 = select <16 x i1> %v92, <16 x float> splat (float 0x7FF0000000000000), <16 x float> %v89
  %v94 = getelementptr inbounds float, ptr %v5, i64 992
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v93, ptr align 4 %v94, <16 x i1> %v57)
  br label %L51
L51:
  ret i32 0
}
declare <16 x float> @llvm.fabs.v16f32(<16 x float>)
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <16 x float> @llvm.sqrt.v16f32(<16 x float>)
declare <32 x float> @llvm.masked.load.v32f32.p0(ptr, <32 x i1>, <32 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, <16 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="256" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
