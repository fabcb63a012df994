define dso_local i32 @lookup(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr ptr, ptr %buffers, i64 2
  %v5 = load ptr, ptr %v4
  %v6 = getelementptr i64, ptr %sizes, i64 0
  %v7 = load i64, ptr %v6
  br label %L8
L8:
  %v11 = phi i64 [ %begin, %entry ], [ %v42, %L24 ]
  %v43 = icmp slt i64 %v11, %end
  br i1 %v43, label %L9, label %L10
L9:
  %v12 = getelementptr inbounds i64, ptr %v1, i64 %v11
  %v13 = load i64, ptr %v12, align 8
  %v14 = icmp slt i64 %v13, 0
  %v15 = add i64 %v13, %v7
  %v16 = select i1 %v14, i64 %v15, i64 %v13
  %v17 = icmp uge i64 %v16, %v7
  br i1 %v17, label %L18, label %L19, !prof !0
L18:
  store i64 %v13, ptr %fault
  %v20 = getelementptr i8, ptr %fault, i64 8
  store i64 %v7, ptr %v20
  %v21 = getelementptr i8, ptr %fault, i64 16
  store i32 0, ptr %v21
  ret i32 1
L19:
  br label %L22
L22:
  %v25 = phi i64 [ 0, %L19 ], [ %v40, %L23 ]
  %v41 = icmp slt i64 %v25, 64
  br i1 %v41, label %L23, label %L24
L23:
  %v26 = mul nsw i64 64, %v16
  %v27 = add nsw i64 %v25, %v26
  %v28 = getelementptr inbounds i16, ptr %v3, i64 %v27
  %v29 = load <32 x i16>, ptr %v28, align 2
  %v30 = zext <32 x i16> %v29 to <32 x i32>
  %v31 = shl <32 x i32> %v30, splat (i32 16)
  %v32 = bitcast <32 x i32> %v31 to <32 x float>
  %v33 = fptrunc <32 x float> %v32 to <32 x half>
  %v34 = mul nsw i64 64, %v11
  %v35 = add nsw i64 %v25, %v34
  %v36 = getelementptr inbounds half, ptr %v5, i64 %v35
  %v37 = shufflevector <32 x half> %v33, <32 x half> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  store <16 x half> %v37, ptr %v36, align 2
  %v38 = shufflevector <32 x half> %v33, <32 x half> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v39 = getelementptr inbounds half, ptr %v36, i64 16
  store <16 x half> %v38, ptr %v39, align 2
  %v40 = add nsw i64 %v25, 32
  br label %L22
L24:
  %v42 = add nsw i64 %v11, 1
  br label %L8
L10:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="256" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
