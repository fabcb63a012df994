define dso_local i32 @column_sums(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr i64, ptr %sizes, i64 0
  %v5 = load i64, ptr %v4
  %v6 = and i64 %v5, -32
  br label %L7
L7:
  %v10 = phi i64 [ 0, %entry ], [ %v39, %L15 ]
  %v40 = icmp slt i64 %v10, %v6
  br i1 %v40, label %L8, label %L9
L8:
  %v11 = insertelement <32 x float> poison, float 0x0000000000000000, i64 0
  %v12 = shufflevector <32 x float> %v11, <32 x float> poison, <32 x i32> zeroinitializer
  br label %L13
L13:
  %v16 = phi i64 [ 0, %L8 ], [ %v36, %L25 ]
  %v17 = phi <32 x float> [ %v12, %L8 ], [ %v35, %L25 ]
  %v37 = icmp slt i64 %v16, 300
  br i1 %v37, label %L14, label %L15
L14:
  %v18 = add nsw i64 %v16, 32
  %v19 = icmp slt i64 %v18, 300
  %v20 = select i1 %v19, i64 %v18, i64 300
  %v21 = insertelement <32 x float> poison, float 0x8000000000000000, i64 0
  %v22 = shufflevector <32 x float> %v21, <32 x float> poison, <32 x i32> zeroinitializer
  br label %L23
L23:
  %v26 = phi i64 [ %v16, %L14 ], [ %v33, %L24 ]
  %v27 = phi <32 x float> [ %v22, %L14 ], [ %v32, %L24 ]
  %v34 = icmp slt i64 %v26, %v20
  br i1 %v34, label %L24, label %L25
L24:
  %v28 = mul nsw i64 %v26, %v5
  %v29 = add nsw i64 %v10, %v28
  %v30 = getelementptr inbounds float, ptr %v1, i64 %v29
  %v31 = load <32 x float>, ptr %v30, align 4
  %v32 = fadd <32 x float> %v27, %v31
  %v33 = add nsw i64 %v26, 1
  br label %L23
L25:
  %v35 = fadd <32 x float> %v17, %v27
  %v36 = add nsw i64 %v16, 32
  br label %L13
L15:
  %v38 = getelementptr inbounds float, ptr %v3, i64 %v10
  store <32 x float> %v17, ptr %v38, align 4
  %v39 = add nsw i64 %v10, 32
  br label %L7
L9:
  %v43 = sub i64 %v5, %v6
  %v44 = icmp sgt i64 %v43, 0
  br i1 %v44, label %L41, label %L42
L41:
  %v45 = trunc i64 %v43 to i32
  %v46 = insertelement <32 x i32> poison, i32 %v45, i64 0
  %v47 = shufflevector <32 x i32> %v46, <32 x i32> poison, <32 x i32> zeroinitializer
  %v48 = icmp sgt <32 x i32> %v47, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v49 = insertelement <32 x float> poison, float 0x0000000000000000, i64 0
  %v50 = shufflevector <32 x float> %v49, <32 x float> poison, <32 x i32> zeroinitializer
  br label %L51
L51:
  %v54 = phi i64 [ 0, %L41 ], [ %v74, %L63 ]
  %v55 = phi <32 x float> [ %v50, %L41 ], [ %v73, %L63 ]
  %v75 = icmp slt i64 %v54, 300
  br i1 %v75, label %L52, label %L53
L52:
  %v56 = add nsw i64 %v54, 32
  %v57 = icmp slt i64 %v56, 300
  %v58 = select i1 %v57, i64 %v56, i64 300
  %v59 = insertelement <32 x float> poison, float 0x8000000000000000, i64 0
  %v60 = shufflevector <32 x float> %v59, <32 x float> poison, <32 x i32> zeroinitializer
  br label %L61
L61:
  %v64 = phi i64 [ %v54, %L52 ], [ %v71, %L62 ]
  %v65 = phi <32 x float> [ %v60, %L52 ], [ %v70, %L62 ]
  %v72 = icmp slt i64 %v64, %v58
  br i1 %v72, label %L62, label %L63
L62:
  %v66 = mul nsw i64 %v64, %v5
  %v67 = add nsw i64 %v6, %v66
  %v68 = getelementptr inbounds float, ptr %v1, i64 %v67
  %v69 = call <32 x float> @llvm.masked.load.v32f32.p0(ptr align 4 %v68, <32 x i1> %v48, <32 x float> zeroinitializer)
  %v70 = fadd <32 x float> %v65, %v69
  %v71 = add nsw i64 %v64, 1
  br label %L61
L63:
  %v73 = fadd <32 x float> %v55, %v65
  %v74 = add nsw i64 %v54, 32
  br label %L51
L53:
  %v76 = getelementptr inbounds float, ptr %v3, i64 %v6
  call void @llvm.masked.store.v32f32.p0(<32 x float> %v55, ptr align 4 %v76, <32 x i1> %v48)
  br label %L42
L42:
  ret i32 0
}
declare <32 x float> @llvm.masked.load.v32f32.p0(ptr, <32 x i1>, <32 x float>)
declare void @llvm.masked.store.v32f32.p0(<32 x float>, ptr, <32 x i1>)
attributes #0 = { nounwind "prefer-vector-width"="256" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
