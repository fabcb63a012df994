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
  %v9 = phi i64 [ %begin, %entry ], [ %v65, %L12 ]
  %v66 = icmp slt i64 %v9, %end
  br i1 %v66, label %L7, label %L8
L7:
  br label %L10
L10:
  %v13 = phi i64 [ 0, %L7 ], [ %v63, %L11 ]
  %v64 = icmp slt i64 %v13, 8
  br i1 %v64, label %L11, label %L12
L11:
  %v14 = mul nsw i64 8, %v9
  %v15 = add nsw i64 %v14, %v13
  %v16 = getelementptr inbounds float, ptr %v1, i64 %v15
  %v17 = load <8 x float>, ptr %v16, align 4
  %v18 = getelementptr inbounds float, ptr %v3, i64 %v13
  %v19 = load <8 x float>, ptr %v18, align 4
  %v20 = fadd <8 x float> %v17, %v19
  %v21 = insertelement <8 x float> poison, float 0x3FE6A09E60000000, i64 0
  %v22 = shufflevector <8 x float> %v21, <8 x float> poison, <8 x i32> zeroinitializer
  %v23 = fmul <8 x float> %v20, %v22
  %v24 = call <8 x float> @llvm.fabs.v8f32(<8 x float> %v23)
  %v25 = fcmp olt <8 x float> splat (float 0x4010000000000000), %v24
  %v26 = select <8 x i1> %v25, <8 x float> splat (float 0x4010000000000000), <8 x float> %v24
  %v27 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0xBEE368E700000000), <8 x float> %v26, <8 x float> splat (float 0x3F1ED63C40000000))
  %v28 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v27, <8 x float> %v26, <8 x float> splat (float 0xBF44BC65E0000000))
  %v29 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v28, <8 x float> %v26, <8 x float> splat (float 0x3F5B4FD460000000))
  %v30 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v29, <8 x float> %v26, <8 x float> splat (float 0xBF25048B00000000))
  %v31 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v30, <8 x float> %v26, <8 x float> splat (float 0xBF939CDDE0000000))
  %v32 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v31, <8 x float> %v26, <8 x float> splat (float 0x3FBA4FA600000000))
  %v33 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v32, <8 x float> %v26, <8 x float> splat (float 0x3FE45F2FA0000000))
  %v34 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v33, <8 x float> %v26, <8 x float> splat (float 0x3FC06EBA80000000))
  %v35 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v26, <8 x float> %v34, <8 x float> %v26)
  %v36 = fneg <8 x float> %v35
  %v37 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v36, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000FE0000000))
  %v38 = bitcast <8 x float> %v37 to <8 x i32>
  %v39 = shl <8 x i32> %v38, splat (i32 23)
  %v40 = bitcast <8 x i32> %v39 to <8 x float>
  %v41 = fsub <8 x float> %v37, splat (float 0x4168000FE0000000)
  %v42 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v41, <8 x float> splat (float 0xBFE62E4300000000), <8 x float> %v36)
  %v43 = call <8 x float> @llvm.fma.v8f32(<8 x float> splat (float 0x3F56A23060000000), <8 x float> %v42, <8 x float> splat (float 0x3F8123A1A0000000))
  %v44 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v43, <8 x float> %v42, <8 x float> splat (float 0x3FA5558F40000000))
  %v45 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v44, <8 x float> %v42, <8 x float> splat (float 0x3FC5554920000000))
  %v46 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v45, <8 x float> %v42, <8 x float> splat (float 0x3FDFFFFFC0000000))
  %v47 = fmul <8 x float> %v42, %v42
  %v48 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v47, <8 x float> %v46, <8 x float> %v42)
  %v49 = fsub <8 x float> splat (float 0x3FF0000000000000), %v40
  %v50 = fneg <8 x float> %v40
  %v51 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v50, <8 x float> %v48, <8 x float> %v49)
  %v52 = call <8 x float> @llvm.copysign.v8f32(<8 x float> %v51, <8 x float> %v23)
  %v53 = insertelement <8 x float> poison, float 0x3FF0000000000000, i64 0
  %v54 = shufflevector <8 x float> %v53, <8 x float> poison, <8 x i32> zeroinitializer
  %v55 = fadd <8 x float> %v54, %v52
  %v56 = insertelement <8 x float> poison, float 0x3FE0000000000000, i64 0
  %v57 = shufflevector <8 x float> %v56, <8 x float> poison, <8 x i32> zeroinitializer
  %v58 = fmul <8 x float> %v20, %v57
  %v59 = fmul <8 x float> %v58, %v55
  %v60 = mul nsw i64 8, %v9
  %v61 = add nsw i64 %v60, %v13
  %v62 = getelementptr inbounds float, ptr %v5, i64 %v61
  store <8 x float> %v59, ptr %v62, align 4
  %v63 = add nsw i64 %v13, 8
  br label %L10
L12:
  %v65 = add nsw i64 %v9, 1
  br label %L6
L8:
  ret i32 0
}
declare <8 x float> @llvm.copysign.v8f32(<8 x float>, <8 x float>)
declare <8 x float> @llvm.fabs.v8f32(<8 x float>)
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
