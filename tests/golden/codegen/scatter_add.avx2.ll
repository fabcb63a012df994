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
  %v9 = phi i64 [ 0, %entry ], [ %v61, %L55 ]
  %v62 = icmp slt i64 %v9, 100
  br i1 %v62, label %L7, label %L8
L7:
  %v10 = getelementptr inbounds i64, ptr %v1, i64 %v9
  %v11 = load <4 x i64>, ptr %v10, align 8
  %v12 = insertelement <4 x i64> poison, i64 10, i64 0
  %v13 = shufflevector <4 x i64> %v12, <4 x i64> poison, <4 x i32> zeroinitializer
  %v14 = icmp uge <4 x i64> %v11, %v13
  %v15 = bitcast <4 x i1> %v14 to i4
  %v16 = icmp ne i4 %v15, 0
  br i1 %v16, label %L17, label %L18, !prof !0
L17:
  %v19 = call i4 @llvm.cttz.i4(i4 %v15, i1 true)
  %v20 = zext i4 %v19 to i64
  %v21 = extractelement <4 x i64> %v11, i64 %v20
  store i64 %v21, ptr %fault
  %v22 = getelementptr i8, ptr %fault, i64 8
  store i64 10, ptr %v22
  %v23 = getelementptr i8, ptr %fault, i64 16
  store i32 0, ptr %v23
  ret i32 1
L18:
  %v24 = getelementptr inbounds float, ptr %v3, i64 %v9
  %v25 = load <4 x float>, ptr %v24, align 4
  %v26 = insertelement <4 x float> poison, float 0x0000000000000000, i64 0
  %v27 = shufflevector <4 x float> %v26, <4 x float> poison, <4 x i32> zeroinitializer
  %v28 = fcmp ogt <4 x float> %v25, %v27
  %v29 = extractelement <4 x i1> %v28, i64 0
  br i1 %v29, label %L30, label %L31
L30:
  %v32 = extractelement <4 x i64> %v11, i64 0
  %v33 = extractelement <4 x float> %v25, i64 0
  %v34 = getelementptr inbounds float, ptr %v5, i64 %v32
  %v35 = load float, ptr %v34, align 4
  %v36 = fadd float %v35, %v33
  store float %v36, ptr %v34, align 4
  br label %L31
L31:
  %v37 = extractelement <4 x i1> %v28, i64 1
  br i1 %v37, label %L38, label %L39
L38:
  %v40 = extractelement <4 x i64> %v11, i64 1
  %v41 = extractelement <4 x float> %v25, i64 1
  %v42 = getelementptr inbounds float, ptr %v5, i64 %v40
  %v43 = load float, ptr %v42, align 4
  %v44 = fadd float %v43, %v41
  store float %v44, ptr %v42, align 4
  br label %L39
L39:
  %v45 = extractelement <4 x i1> %v28, i64 2
  br i1 %v45, label %L46, label %L47
L46:
  %v48 = extractelement <4 x i64> %v11, i64 2
  %v49 = extractelement <4 x float> %v25, i64 2
  %v50 = getelementptr inbounds float, ptr %v5, i64 %v48
  %v51 = load float, ptr %v50, align 4
  %v52 = fadd float %v51, %v49
  store float %v52, ptr %v50, align 4
  br label %L47
L47:
  %v53 = extractelement <4 x i1> %v28, i64 3
  br i1 %v53, label %L54, label %L55
L54:
  %v56 = extractelement <4 x i64> %v11, i64 3
  %v57 = extractelement <4 x float> %v25, i64 3
  %v58 = getelementptr inbounds float, ptr %v5, i64 %v56
  %v59 = load float, ptr %v58, align 4
  %v60 = fadd float %v59, %v57
  store float %v60, ptr %v58, align 4
  br label %L55
L55:
  %v61 = add nsw i64 %v9, 4
  br label %L6
L8:
  ret i32 0
}
declare i4 @llvm.cttz.i4(i4, i1)
attributes #0 = { nounwind "prefer-vector-width"="256" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
