define dso_local i32 @running_sum(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = insertelement <2 x double> poison, double 0x0000000000000000, i64 0
  %v5 = shufflevector <2 x double> %v4, <2 x double> poison, <2 x i32> zeroinitializer
  br label %L6
L6:
  %v9 = phi i64 [ 0, %entry ], [ %v22, %L7 ]
  %v10 = phi <2 x double> [ %v5, %entry ], [ %v19, %L7 ]
  %v23 = icmp slt i64 %v9, 1002
  br i1 %v23, label %L7, label %L8
L7:
  %v11 = getelementptr inbounds float, ptr %v1, i64 %v9
  %v12 = load <2 x float>, ptr %v11, align 4
  %v13 = fpext <2 x float> %v12 to <2 x double>
  %v14 = insertelement <2 x double> poison, double 0x8000000000000000, i64 0
  %v15 = shufflevector <2 x double> %v14, <2 x double> poison, <2 x i32> zeroinitializer
  %v16 = shufflevector <2 x double> %v13, <2 x double> %v15, <2 x i32> <i32 2, i32 0>
  %v17 = fadd <2 x double> %v16, %v13
  %v18 = fadd <2 x double> %v10, %v17
  %v19 = shufflevector <2 x double> %v18, <2 x double> %v18, <2 x i32> <i32 1, i32 1>
  %v20 = fptrunc <2 x double> %v18 to <2 x float>
  %v21 = getelementptr inbounds float, ptr %v3, i64 %v9
  store <2 x float> %v20, ptr %v21, align 4
  %v22 = add nsw i64 %v9, 2
  br label %L6
L8:
  %v24 = extractelement <2 x double> %v10, i64 0
  br label %L25
L25:
  %v28 = phi i64 [ 1002, %L8 ], [ %v36, %L26 ]
  %v29 = phi double [ %v24, %L8 ], [ %v33, %L26 ]
  %v37 = icmp slt i64 %v28, 1003
  br i1 %v37, label %L26, label %L27
L26:
  %v30 = getelementptr inbounds float, ptr %v1, i64 %v28
  %v31 = load float, ptr %v30, align 4
  %v32 = fpext float %v31 to double
  %v33 = fadd double %v29, %v32
  %v34 = fptrunc double %v33 to float
  %v35 = getelementptr inbounds float, ptr %v3, i64 %v28
  store float %v34, ptr %v35, align 4
  %v36 = add nsw i64 %v28, 1
  br label %L25
L27:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="128" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
