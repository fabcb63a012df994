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
  %v11 = phi i64 [ %begin, %entry ], [ %v69, %L46 ]
  %v70 = icmp slt i64 %v11, %end
  br i1 %v70, label %L9, label %L10
L9:
  %v12 = getelementptr inbounds i8, ptr %v3, i64 %v11
  %v13 = load i8, ptr %v12, align 1
  %v14 = icmp ne i8 %v13, 0
  %v15 = insertelement <4 x double> poison, double 0x8000000000000000, i64 0
  %v16 = shufflevector <4 x double> %v15, <4 x double> poison, <4 x i32> zeroinitializer
  br label %L17
L17:
  %v20 = phi i64 [ 0, %L9 ], [ %v35, %L18 ]
  %v21 = phi <4 x double> [ %v16, %L9 ], [ %v34, %L18 ]
  %v36 = icmp slt i64 %v20, 4
  br i1 %v36, label %L18, label %L19
L18:
  %v22 = mul nsw i64 4, %v11
  %v23 = add nsw i64 %v22, %v20
  %v24 = getelementptr inbounds double, ptr %v1, i64 %v23
  %v25 = load <4 x double>, ptr %v24, align 8
  %v26 = insertelement <4 x double> poison, double 0x0000000000000000, i64 0
  %v27 = shufflevector <4 x double> %v26, <4 x double> poison, <4 x i32> zeroinitializer
  %v28 = select i1 %v14, <4 x double> %v27, <4 x double> %v25
  %v29 = mul nsw i64 4, %v11
  %v30 = add nsw i64 %v29, %v20
  %v31 = getelementptr inbounds double, ptr %v5, i64 %v30
  %v32 = load <4 x double>, ptr %v31, align 8
  %v33 = fmul <4 x double> %v28, %v32
  %v34 = call <4 x double> @llvm.fmuladd.v4f64(<4 x double> %v28, <4 x double> %v32, <4 x double> %v21)
  %v35 = add nsw i64 %v20, 4
  br label %L17
L19:
  %v37 = shufflevector <4 x double> %v21, <4 x double> poison, <2 x i32> <i32 0, i32 1>
  %v38 = shufflevector <4 x double> %v21, <4 x double> poison, <2 x i32> <i32 2, i32 3>
  %v39 = fadd <2 x double> %v37, %v38
  %v40 = extractelement <2 x double> %v39, i64 0
  %v41 = extractelement <2 x double> %v39, i64 1
  %v42 = fadd double %v40, %v41
  %v43 = fadd double 0x0000000000000000, %v42
  br label %L44
L44:
  %v47 = phi i64 [ 0, %L19 ], [ %v67, %L45 ]
  %v68 = icmp slt i64 %v47, 4
  br i1 %v68, label %L45, label %L46
L45:
  %v48 = mul nsw i64 4, %v11
  %v49 = add nsw i64 %v48, %v47
  %v50 = getelementptr inbounds double, ptr %v1, i64 %v49
  %v51 = load <4 x double>, ptr %v50, align 8
  %v52 = insertelement <4 x double> poison, double 0x0000000000000000, i64 0
  %v53 = shufflevector <4 x double> %v52, <4 x double> poison, <4 x i32> zeroinitializer
  %v54 = select i1 %v14, <4 x double> %v53, <4 x double> %v51
  %v55 = mul nsw i64 4, %v11
  %v56 = add nsw i64 %v55, %v47
  %v57 = getelementptr inbounds double, ptr %v5, i64 %v56
  %v58 = load <4 x double>, ptr %v57, align 8
  %v59 = fmul <4 x double> %v54, %v58
  %v60 = insertelement <4 x double> poison, double %v43, i64 0
  %v61 = shufflevector <4 x double> %v60, <4 x double> poison, <4 x i32> zeroinitializer
  %v62 = fmul <4 x double> %v58, %v61
  %v63 = fsub <4 x double> %v59, %v62
  %v64 = mul nsw i64 4, %v11
  %v65 = add nsw i64 %v64, %v47
  %v66 = getelementptr inbounds double, ptr %v7, i64 %v65
  store <4 x double> %v63, ptr %v66, align 8
  %v67 = add nsw i64 %v47, 4
  br label %L44
L46:
  %v69 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
declare <4 x double> @llvm.fmuladd.v4f64(<4 x double>, <4 x double>, <4 x double>)
attributes #0 = { nounwind "prefer-vector-width"="512" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
