define dso_local i32 @scatter_add(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  br label %L6
L6:
  %v9 = phi i64 [ 0, %entry ], [ %v45, %L39 ]
  %v46 = icmp slt i64 %v9, 100
  br i1 %v46, label %L7, label %L8
L7:
  %v10 = getelementptr inbounds i64, ptr %v1, i64 %v9
  %v11 = load <2 x i64>, ptr %v10, align 8
  %v12 = insertelement <2 x i64> poison, i64 10, i64 0
  %v13 = shufflevector <2 x i64> %v12, <2 x i64> poison, <2 x i32> zeroinitializer
  %v14 = icmp uge <2 x i64> %v11, %v13
  %v15 = bitcast <2 x i1> %v14 to i2
  %v16 = icmp ne i2 %v15, 0
  br i1 %v16, label %L17, label %L18, !prof !0
L17:
  %v19 = call i2 @llvm.cttz.i2(i2 %v15, i1 true)
  %v20 = zext i2 %v19 to i64
  %v21 = extractelement <2 x i64> %v11, i64 %v20
  store i64 %v21, ptr %fault
  %v22 = getelementptr i8, ptr %fault, i64 8
  store i64 10, ptr %v22
  %v23 = getelementptr i8, ptr %fault, i64 16
  store i32 0, ptr %v23
  ret i32 1
L18:
  %v24 = getelementptr inbounds float, ptr %v3, i64 %v9
  %v25 = load <2 x float>, ptr %v24, align 4
  %v26 = insertelement <2 x float> poison, float 0x0000000000000000, i64 0
  %v27 = shufflevector <2 x float> %v26, <2 x float> poison, <2 x i32> zeroinitializer
  %v28 = fcmp ogt <2 x float> %v25, %v27
  %v29 = extractelement <2 x i1> %v28, i64 0
  br i1 %v29, label %L30, label %L31
L30:
  %v32 = extractelement <2 x i64> %v11, i64 0
  %v33 = extractelement <2 x float> %v25, i64 0
  %v34 = getelementptr inbounds float, ptr %v5, i64 %v32
  %v35 = load float, ptr %v34, align 4
  %v36 = fadd float %v35, %v33
  store float %v36, ptr %v34, align 4
  br label %L31
L31:
  %v37 = extractelement <2 x i1> %v28, i64 1
  br i1 %v37, label %L38, label %L39
L38:
  %v40 = extractelement <2 x i64> %v11, i64 1
  %v41 = extractelement <2 x float> %v25, i64 1
  %v42 = getelementptr inbounds float, ptr %v5, i64 %v40
  %v43 = load float, ptr %v42, align 4
  %v44 = fadd float %v43, %v41
  store float %v44, ptr %v42, align 4
  br label %L39
L39:
  %v45 = add nsw i64 %v9, 2
  br label %L6
L8:
  ret i32 0
}
declare i2 @llvm.cttz.i2(i2, i1)
attributes #0 = { nounwind "prefer-vector-width"="128" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
