define dso_local i32 @running_sum(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = insertelement <4 x double> poison, double 0x0000000000000000, i64 0
  %v5 = shufflevector <4 x double> %v4, <4 x double> poison, <4 x i32> zeroinitializer
  br label %L6
L6:
  %v9 = phi i64 [ 0, %entry ], [ %v24, %L7 ]
  %v10 = phi <4 x double> [ %v5, %entry ], [ %v21, %L7 ]
  %v25 = icmp slt i64 %v9, 1000
  br i1 %v25, label %L7, label %L8
L7:
  %v11 = getelementptr inbounds float, ptr %v1, i64 %v9
  %v12 = load <4 x float>, ptr %v11, align 4
  %v13 = fpext <4 x float> %v12 to <4 x double>
  %v14 = insertelement <4 x double> poison, double 0x8000000000000000, i64 0
  %v15 = shufflevector <4 x double> %v14, <4 x double> poison, <4 x i32> zeroinitializer
  %v16 = shufflevector <4 x double> %v13, <4 x double> %v15, <4 x i32> <i32 4, i32 0, i32 1, i32 2>
  %v17 = fadd <4 x double> %v16, %v13
  %v18 = shufflevector <4 x double> %v17, <4 x double> %v15, <4 x i32> <i32 4, i32 4, i32 0, i32 1>
  %v19 = fadd <4 x double> %v18, %v17
  %v20 = fadd <4 x double> %v10, %v19
  %v21 = shufflevector <4 x double> %v20, <4 x double> %v20, <4 x i32> <i32 3, i32 3, i32 3, i32 3>
  %v22 = fptrunc <4 x double> %v20 to <4 x float>
  %v23 = getelementptr inbounds float, ptr %v3, i64 %v9
  store <4 x float> %v22, ptr %v23, align 4
  %v24 = add nsw i64 %v9, 4
  br label %L6
L8:
  %v28 = sub i64 1003, 1000
  %v29 = icmp sgt i64 %v28, 0
  br i1 %v29, label %L26, label %L27
L26:
  %v30 = trunc i64 %v28 to i32
  %v31 = insertelement <4 x i32> poison, i32 %v30, i64 0
  %v32 = shufflevector <4 x i32> %v31, <4 x i32> poison, <4 x i32> zeroinitializer
  %v33 = icmp sgt <4 x i32> %v32, <i32 0, i32 1, i32 2, i32 3>
  %v34 = getelementptr inbounds float, ptr %v1, i64 1000
  %v35 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 4 %v34, <4 x i1> %v33, <4 x float> zeroinitializer)
  %v36 = fpext <4 x float> %v35 to <4 x double>
  %v37 = insertelement <4 x double> poison, double 0x8000000000000000, i64 0
  %v38 = shufflevector <4 x double> %v37, <4 x double> poison, <4 x i32> zeroinitializer
  %v39 = select <4 x i1> %v33, <4 x double> %v36, <4 x double> %v38
  %v40 = shufflevector <4 x double> %v39, <4 x double> %v38, <4 x i32> <i32 4, i32 0, i32 1, i32 2>
  %v41 = fadd <4 x double> %v40, %v39
  %v42 = shufflevector <4 x double> %v41, <4 x double> %v38, <4 x i32> <i32 4, i32 4, i32 0, i32 1>
  %v43 = fadd <4 x double> %v42, %v41
  %v44 = fadd <4 x double> %v10, %v43
  %v45 = shufflevector <4 x double> %v44, <4 x double> %v44, <4 x i32> <i32 3, i32 3, i32 3, i32 3>
  %v46 = fptrunc <4 x double> %v44 to <4 x float>
  %v47 = getelementptr inbounds float, ptr %v3, i64 1000
  call void @llvm.masked.store.v4f32.p0(<4 x float> %v46, ptr align 4 %v47, <4 x i1> %v33)
  br label %L27
L27:
  %v48 = phi <4 x double> [ %v45, %L26 ], [ %v10, %L8 ]
  %v49 = extractelement <4 x double> %v48, i64 0
  ret i32 0
}
declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, <4 x i1>, <4 x float>)
declare void @llvm.masked.store.v4f32.p0(<4 x float>, ptr, <4 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="256" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
