define dso_local i32 @running_sum(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = insertelement <8 x double> poison, double 0x0000000000000000, i64 0
  %v5 = shufflevector <8 x double> %v4, <8 x double> poison, <8 x i32> zeroinitializer
  br label %L6
L6:
  %v9 = phi i64 [ 0, %entry ], [ %v26, %L7 ]
  %v10 = phi <8 x double> [ %v5, %entry ], [ %v23, %L7 ]
  %v27 = icmp slt i64 %v9, 1000
  br i1 %v27, label %L7, label %L8
L7:
  %v11 = getelementptr inbounds float, ptr %v1, i64 %v9
  %v12 = load <8 x float>, ptr %v11, align 4
  %v13 = fpext <8 x float> %v12 to <8 x double>
  %v14 = insertelement <8 x double> poison, double 0x8000000000000000, i64 0
  %v15 = shufflevector <8 x double> %v14, <8 x double> poison, <8 x i32> zeroinitializer
  %v16 = shufflevector <8 x double> %v13, <8 x double> %v15, <8 x i32> <i32 8, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6>
  %v17 = fadd <8 x double> %v16, %v13
  %v18 = shufflevector <8 x double> %v17, <8 x double> %v15, <8 x i32> <i32 8, i32 8, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5>
  %v19 = fadd <8 x double> %v18, %v17
  %v20 = shufflevector <8 x double> %v19, <8 x double> %v15, <8 x i32> <i32 8, i32 8, i32 8, i32 8, i32 0, i32 1, i32 2, i32 3>
  %v21 = fadd <8 x double> %v20, %v19
  %v22 = fadd <8 x double> %v10, %v21
  %v23 = shufflevector <8 x double> %v22, <8 x double> %v22, <8 x i32> <i32 7, i32 7, i32 7, i32 7, i32 7, i32 7, i32 7, i32 7>
  %v24 = fptrunc <8 x double> %v22 to <8 x float>
  %v25 = getelementptr inbounds float, ptr %v3, i64 %v9
  store <8 x float> %v24, ptr %v25, align 4
  %v26 = add nsw i64 %v9, 8
  br label %L6
L8:
  %v30 = sub i64 1003, 1000
  %v31 = icmp sgt i64 %v30, 0
  br i1 %v31, label %L28, label %L29
L28:
  %v32 = trunc i64 %v30 to i32
  %v33 = insertelement <8 x i32> poison, i32 %v32, i64 0
  %v34 = shufflevector <8 x i32> %v33, <8 x i32> poison, <8 x i32> zeroinitializer
  %v35 = icmp sgt <8 x i32> %v34, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v36 = getelementptr inbounds float, ptr %v1, i64 1000
  %v37 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v36, <8 x i1> %v35, <8 x float> zeroinitializer)
  %v38 = fpext <8 x float> %v37 to <8 x double>
  %v39 = insertelement <8 x double> poison, double 0x8000000000000000, i64 0
  %v40 = shufflevector <8 x double> %v39, <8 x double> poison, <8 x i32> zeroinitializer
  %v41 = select <8 x i1> %v35, <8 x double> %v38, <8 x double> %v40
  %v42 = shufflevector <8 x double> %v41, <8 x double> %v40, <8 x i32> <i32 8, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6>
  %v43 = fadd <8 x double> %v42, %v41
  %v44 = shufflevector <8 x double> %v43, <8 x double> %v40, <8 x i32> <i32 8, i32 8, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5>
  %v45 = fadd <8 x double> %v44, %v43
  %v46 = shufflevector <8 x double> %v45, <8 x double> %v40, <8 x i32> <i32 8, i32 8, i32 8, i32 8, i32 0, i32 1, i32 2, i32 3>
  %v47 = fadd <8 x double> %v46, %v45
  %v48 = fadd <8 x double> %v10, %v47
  %v49 = shufflevector <8 x double> %v48, <8 x double> %v48, <8 x i32> <i32 7, i32 7, i32 7, i32 7, i32 7, i32 7, i32 7, i32 7>
  %v50 = fptrunc <8 x double> %v48 to <8 x float>
  %v51 = getelementptr inbounds float, ptr %v3, i64 1000
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v50, ptr align 4 %v51, <8 x i1> %v35)
  br label %L29
L29:
  %v52 = phi <8 x double> [ %v49, %L28 ], [ %v10, %L8 ]
  %v53 = extractelement <8 x double> %v52, i64 0
  ret i32 0
}
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr, <8 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
