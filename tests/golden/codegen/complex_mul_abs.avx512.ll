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
  %v11 = load <64 x float>, ptr %v10, align 4
  %v12 = shufflevector <64 x float> %v11, <64 x float> poison, <32 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14, i32 16, i32 18, i32 20, i32 22, i32 24, i32 26, i32 28, i32 30, i32 32, i32 34, i32 36, i32 38, i32 40, i32 42, i32 44, i32 46, i32 48, i32 50, i32 52, i32 54, i32 56, i32 58, i32 60, i32 62>
  %v13 = shufflevector <64 x float> %v11, <64 x float> poison, <32 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15, i32 17, i32 19, i32 21, i32 23, i32 25, i32 27, i32 29, i32 31, i32 33, i32 35, i32 37, i32 39, i32 41, i32 43, i32 45, i32 47, i32 49, i32 51, i32 53, i32 55, i32 57, i32 59, i32 61, i32 63>
  %v14 = getelementptr inbounds { float, float }, ptr %v3, i64 %v9
  %v15 = load <64 x float>, ptr %v14, align 4
  %v16 = shufflevector <64 x float> %v15, <64 x float> poison, <32 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14, i32 16, i32 18, i32 20, i32 22, i32 24, i32 26, i32 28, i32 30, i32 32, i32 34, i32 36, i32 38, i32 40, i32 42, i32 44, i32 46, i32 48, i32 50, i32 52, i32 54, i32 56, i32 58, i32 60, i32 62>
  %v17 = shufflevector <64 x float> %v15, <64 x float> poison, <32 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15, i32 17, i32 19, i32 21, i32 23, i32 25, i32 27, i32 29, i32 31, i32 33, i32 35, i32 37, i32 39, i32 41, i32 43, i32 45, i32 47, i32 49, i32 51, i32 53, i32 55, i32 57, i32 59, i32 61, i32 63>
  %v18 = fmul <32 x float> %v13, %v17
  %v19 = fmul <32 x float> %v12, %v16
  %v20 = fsub <32 x float> %v19, %v18
  %v21 = fmul <32 x float> %v13, %v16
  %v22 = fmul <32 x float> %v12, %v17
  %v23 = fadd <32 x float> %v22, %v21
  %v24 = call <32 x float> @llvm.fabs.v32f32(<32 x float> %v20)
  %v25 = call <32 x float> @llvm.fabs.v32f32(<32 x float> %v23)
  %v26 = fcmp ogt <32 x float> %v24, %v25
  %v27 = select <32 x i1> %v26, <32 x float> %v24, <32 x float> %v25
  %v28 = fcmp ogt <32 x float> %v27, splat (float 0x43D0000000000000)
  %v29 = fcmp olt <32 x float> %v27, splat (float 0x3D70000000000000)
  %v30 = select <32 x i1> %v29, <32 x float> splat (float 0x4630000000000000), <32 x float> splat (float 0x3FF0000000000000)
  %v31 = select <32 x i1> %v28, <32 x float> splat (float 0x3BB0000000000000), <32 x float> %v30
  %v32 = select <32 x i1> %v29, <32 x float> splat (float 0x39B0000000000000), <32 x float> splat (float 0x3FF0000000000000)
  %v33 = select <32 x i1> %v28, <32 x float> splat (float 0x4430000000000000), <32 x float> %v32
  %v34 = fmul <32 x float> %v24, %v31
  %v35 = fmul <32 x float> %v25, %v31
  %v36 = fmul <32 x float> %v35, %v35
  %v37 = call <32 x float> @llvm.fma.v32f32(<32 x float> %v34, <32 x float> %v34, <32 x float> %v36)
  %v38 = call <32 x float> @llvm.sqrt.v32f32(<32 x float> %v37)
  %v39 = fmul <32 x float> %v38, %v33
  %v40 = fcmp oeq <32 x float> %v25, splat (float 0x7FF0000000000000)
  %v41 = fcmp oeq <32 x float> %v24, splat (float 0x7FF0000000000000)
  %v42 = or <32 x i1> %v41, %v40
  %v43 = select <32 x i1> %v42, <32 x float> splat (float 0x7FF0000000000000), <32 x float> %v39
  %v44 = getelementptr inbounds float, ptr %v5, i64 %v9
  %v45 = shufflevector <32 x float> %v43, <32 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  store <16 x float> %v45, ptr %v44, align 4
  %v46 = shufflevector <32 x float> %v43, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v47 = getelementptr inbounds float, ptr %v44, i64 16
  store <16 x float> %v46, ptr %v47, align 4
  %v48 = add nsw i64 %v9, 32
  br label %L6
L8:
  %v52 = sub i64 1000, 992
  %v53 = icmp sgt i64 %v52, 0
  br i1 %v53, label %L50, label %L51
L50:
  %v54 = trunc i64 %v52 to i32
  %v55 = insertelement <32 x i32> poison, i32 %v54, i64 0
  %v56 = shufflevector <32 x i32> %v55, <32 x i32> poison, <32 x i32> zeroinitializer
  %v57 = icmp sgt <32 x i32> %v56, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v58 = getelementptr inbounds { float, float }, ptr %v1, i64 992
  %v59 = shufflevector <32 x i1> %v57, <32 x i1> zeroinitializer, <64 x i32> <i32 0, i32 0, i32 1, i32 1, i32 2, i32 2, i32 3, i32 3, i32 4, i32 4, i32 5, i32 5, i32 6, i32 6, i32 7, i32 7, i32 8, i32 8, i32 9, i32 9, i32 10, i32 10, i32 11, i32 11, i32 12, i32 12, i32 13, i32 13, i32 14, i32 14, i32 15, i32 15, i32 16, i32 16, i32 17, i32 17, i32 18, i32 18, i32 19, i32 19, i32 20, i32 20, i32 21, i32 21, i32 22, i32 22, i32 23, i32 23, i32 24, i32 24, i32 25, i32 25, i32 26, i32 26, i32 27, i32 27, i32 28, i32 28, i32 29, i32 29, i32 30, i32 30, i32 31, i32 31>
  %v60 = call <64 x float> @llvm.masked.load.v64f32.p0(ptr align 4 %v58, <64 x i1> %v59, <64 x float> zeroinitializer)
  %v61 = shufflevector <64 x float> %v60, <64 x float> poison, <32 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14, i32 16, i32 18, i32 20, i32 22, i32 24, i32 26, i32 28, i32 30, i32 32, i32 34, i32 36, i32 38, i32 40, i32 42, i32 44, i32 46, i32 48, i32 50, i32 52, i32 54, i32 56, i32 58, i32 60, i32 62>
  %v62 = shufflevector <64 x float> %v60, <64 x float> poison, <32 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15, i32 17, i32 19, i32 21, i32 23, i32 25, i32 27, i32 29, i32 31, i32 33, i32 35, i32 37, i32 39, i32 41, i32 43, i32 45, i32 47, i32 49, i32 51, i32 53, i32 55, i32 57, i32 59, i32 61, i32 63>
  %v63 = getelementptr inbounds { float, float }, ptr %v3, i64 992
  %v64 = shufflevector <32 x i1> %v57, <32 x i1> zeroinitializer, <64 x i32> <i32 0, i32 0, i32 1, i32 1, i32 2, i32 2, i32 3, i32 3, i32 4, i32 4, i32 5, i32 5, i32 6, i32 6, i32 7, i32 7, i32 8, i32 8, i32 9, i32 9, i32 10, i32 10, i32 11, i32 11, i32 12, i32 12, i32 13, i32 13, i32 14, i32 14, i32 15, i32 15, i32 16, i32 16, i32 17, i32 17, i32 18, i32 18, i32 19, i32 19, i32 20, i32 20, i32 21, i32 21, i32 22, i32 22, i32 23, i32 23, i32 24, i32 24, i32 25, i32 25, i32 26, i32 26, i32 27, i32 27, i32 28, i32 28, i32 29, i32 29, i32 30, i32 30, i32 31, i32 31>
  %v65 = call <64 x float> @llvm.masked.load.v64f32.p0(ptr align 4 %v63, <64 x i1> %v64, <64 x float> zeroinitializer)
  %v66 = shufflevector <64 x float> %v65, <64 x float> poison, <32 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14, i32 16, i32 18, i32 20, i32 22, i32 24, i32 26, i32 28, i32 30, i32 32, i32 34, i32 36, i32 38, i32 40, i32 42, i32 44, i32 46, i32 48, i32 50, i32 52, i32 54, i32 56, i32 58, i32 60, i32 62>
  %v67 = shufflevector <64 x float> %v65, <64 x float> poison, <32 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15, i32 17, i32 19, i32 21, i32 23, i32 25, i32 27, i32 29, i32 31, i32 33, i32 35, i32 37, i32 39, i32 41, i32 43, i32 45, i32 47, i32 49, i32 51, i32 53, i32 55, i32 57, i32 59, i32 61, i32 63>
  %v68 = fmul <32 x float> %v62, %v67
  %v69 = fmul <32 x float> %v61, %v66
  %v70 = fsub <32 x float> %v69, %v68
  %v71 = fmul <32 x float> %v62, %v66
  %v72 = fmul <32 x float> %v61, %v67
  %v73 = fadd <32 x float> %v72, %v71
  %v74 = call <32 x float> @llvm.fabs.v32f32(<32 x float> %v70)
  %v75 = call <32 x float> @llvm.fabs.v32f32(<32 x float> %v73)
  %v76 = fcmp ogt <32 x float> %v74, %v75
  %v77 = select <32 x i1> %v76, <32 x float> %v74, <32 x float> %v75
  %v78 = fcmp ogt <32 x float> %v77, splat (float 0x43D0000000000000)
  %v79 = fcmp olt <32 x float> %v77, splat (float 0x3D70000000000000)
  %v80 = select <32 x i1> %v79, <32 x float> splat (float 0x4630000000000000), <32 x float> splat (float 0x3FF0000000000000)
  %v81 = select <32 x i1> %v78, <32 x float> splat (float 0x3BB0000000000000), <32 x float> %v80
  %v82 = select <32 x i1> %v79, <32 x float> splat (float 0x39B0000000000000), <32 x float> splat (float 0x3FF0000000000000)
  %v83 = select <32 x i1> %v78, <32 x float> splat (float 0x4430000000000000), <32 x float> %v82
  %v84 = fmul <32 x float> %v74, %v81
  %v85 = fmul <32 x float> %v75, %v81
  %v86 = fmul <32 x float> %v85, %v85
  %v87 = call <32 x float> @llvm.fma.v32f32(<32 x float> %v84, <32 x float> %v84, <32 x float> %v86)
  %v88 = call <32 x float> @llvm.sqrt.v32f32(<32 x float> %v87)
  %v89 = fmul <32 x float> %v88, %v83
  %v90 = fcmp oeq <32 x float> %v75, splat (float 0x7FF0000000000000)
  %v91 = fcmp oeq <32 x float> %v74, splat (float 0x7FF0000000000000)
  %v92 = or <32 x i1> %v91, %v90
  %v93 = select <32 x i1> %v92, <32 x float> splat (float 0x7FF0000000000000), <32 x float> %v89
  %v94 = getelementptr inbounds float, ptr %v5, i64 992
  call void @llvm.masked.store.v32f32.p0(<32 x float> %v93, ptr align 4 %v94, <32 x i1> %v57)
  br label %L51
L51:
  ret i32 0
}
declare <32 x float> @llvm.fabs.v32f32(<32 x float>)
declare <32 x float> @llvm.fma.v32f32(<32 x float>, <32 x float>, <32 x float>)
declare <32 x float> @llvm.sqrt.v32f32(<32 x float>)
declare <64 x float> @llvm.masked.load.v64f32.p0(ptr, <64 x i1>, <64 x float>)
declare void @llvm.masked.store.v32f32.p0(<32 x float>, ptr, <32 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
